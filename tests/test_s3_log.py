"""The log on S3 keeps the contract of logs: over moto behind the strict proxy."""

from collections.abc import Iterator

import pytest

from jobevents.backends.bloblog import BlobRecorder
from jobevents.backends.s3 import S3Blobs
from jobevents.log import EventLog
from tests.bloblogs import BlobLogContract

pytest_plugins = ("tests.s3",)
pytestmark = pytest.mark.slow


class TestS3Log(BlobLogContract):
    """What every log on blobs promises."""

    races = 5

    @pytest.fixture
    def log(self, s3_blobs: S3Blobs) -> Iterator[EventLog]:
        recorder = BlobRecorder(s3_blobs, "log-1", once=s3_blobs.once())
        log = EventLog(recorder, recorder.translate)
        yield log
        log.close()
