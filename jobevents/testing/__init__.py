"""Contracts and tools that prove a backend right, shipped to users."""

from jobevents.testing.blobs import BlobsContract
from jobevents.testing.faults import Died, FailingBlobs
from jobevents.testing.leases import LeasesContract
from jobevents.testing.log import LogContract

__all__ = ["BlobsContract", "Died", "FailingBlobs", "LeasesContract", "LogContract"]
