"""The HTTP API over the jobs of one log; needs the extra `server`."""

from projections.api.app import create_app as create_app
