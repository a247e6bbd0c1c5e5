"""The four stores of blobs keep the port's promises."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobevents.backends.gcs import GcsBlobs
from jobevents.backends.sqlblobs import SqliteBlobs
from jobevents.blobs import Blobs, FileBlobs, MemoryBlobs
from jobevents.testing import BlobsContract
from tests.gcs_proxy import GcsProxy

pytest_plugins = ("tests.gcs",)


class TestMemoryBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self) -> Blobs:
        return MemoryBlobs()


class TestFileBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> Blobs:
        return FileBlobs(tmp_path / "blobs")


class TestSqliteBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> Iterator[Blobs]:
        blobs = SqliteBlobs(tmp_path / "blobs.db")
        yield blobs
        blobs.close()


class TestSqliteBlobsInMemory(BlobsContract):
    @pytest.fixture
    def blobs(self) -> Iterator[Blobs]:
        blobs = SqliteBlobs(":memory:")
        yield blobs
        blobs.close()


class TestGcsBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, gcs_blobs: GcsBlobs) -> Blobs:
        return gcs_blobs


class TestGcsBlobsListedByTheEmulator(BlobsContract):
    """What the proxy answers from its books elsewhere."""

    test_list_of_many = None  # type: ignore[assignment]  # a minute: it looks through all for each object

    @pytest.fixture
    def blobs(self, gcs_bucket: str, gcs_proxy: GcsProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Blobs]:
        plain = GcsProxy()
        plain.start(gcs_proxy.upstream_port)
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", plain.url)
        blobs = GcsBlobs(gcs_bucket)
        yield blobs
        blobs.close()
        plain.stop()
        assert [] == plain.violations
