"""Contracts and tools that prove a backend right, shipped to users."""

from pkgutil import iter_modules

import pytest

# Before they are imported: a failed assertion then says what it compared.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

from jobevents.testing.blobs import BlobsContract  # noqa: E402
from jobevents.testing.bus import BusContract  # noqa: E402
from jobevents.testing.clock import Clock  # noqa: E402
from jobevents.testing.faults import Died, FailingBlobs  # noqa: E402
from jobevents.testing.jobqueue import JobQueueContract  # noqa: E402
from jobevents.testing.jobstore import JobStoreContract  # noqa: E402
from jobevents.testing.leases import LeasesContract  # noqa: E402
from jobevents.testing.log import LogContract  # noqa: E402

__all__ = [
    "BlobsContract",
    "BusContract",
    "Clock",
    "Died",
    "FailingBlobs",
    "JobQueueContract",
    "JobStoreContract",
    "LeasesContract",
    "LogContract",
]
