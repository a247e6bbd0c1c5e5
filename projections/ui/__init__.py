"""The dashboard: pages about the jobs of one log, rendered on the server; needs the extra `server`."""
