"""Contracts and tools that prove a backend right, shipped to users."""

from jobevents.testing.blobs import BlobsContract

__all__ = ["BlobsContract"]
