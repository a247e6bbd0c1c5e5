"""The part of the blobs contract in which eight threads meet."""

# ruff: noqa: SIM300 - the expected value stands first

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from jobevents.blobs import ABSENT, Blob, Blobs
from jobevents.errors import Conflict

THREADS = 8


class BlobRaces:
    """Promises to writers and readers of one name at once; `BlobsContract` includes them."""

    turns = 5  # fewer where a write takes long

    def test_one_of_eight_creates(self, blobs: Blobs) -> None:
        """Of eight threads that create one name, one succeeds, and its data stays."""
        for turn in range(self.turns):
            name = f"slot/{turn}"

            won = together(lambda n, name=name: blobs.put(name, b"%d" % n, if_generation=ABSENT))  # type: ignore[misc]

            assert 1 == len(won)
            blob = read_blob(blobs, name)
            assert won == {int(blob.data): blob.generation}

    def test_one_of_eight_replaces(self, blobs: Blobs) -> None:
        """Of eight threads that replace one generation by other bytes, one succeeds.

        Other bytes than are there: a store that compares hashes of them, as S3 does, cannot tell the same again from before.
        """
        generation = blobs.put("a", b"start")
        for turn in range(self.turns):

            def replace(n: int, turn: int = turn, over: str = generation) -> str:
                return blobs.put("a", b"%d in turn %d" % (n, turn), if_generation=over)

            won = together(replace)

            assert 1 == len(won)
            generation = read_blob(blobs, "a").generation
            assert [generation] == list(won.values())

    def test_no_increment_is_lost(self, blobs: Blobs) -> None:
        """Eight threads that count by compare and swap lose nothing."""
        blobs.put("count", b"0")

        def count(_: int) -> str:
            for _turn in range(self.turns):
                while True:
                    blob = read_blob(blobs, "count")
                    with contextlib.suppress(Conflict):
                        blobs.put("count", b"%d" % (int(blob.data) + 1), if_generation=blob.generation)
                        break
            return ""

        together(count)

        assert b"%d" % (THREADS * self.turns) == read_blob(blobs, "count").data

    def test_one_of_eight_deletes(self, blobs: Blobs) -> None:
        """Of eight threads that delete one generation, one is told that it did."""
        generation = blobs.put("a", b"1")

        told = together(lambda _: str(blobs.delete("a", if_generation=generation)))

        assert 1 == list(told.values()).count("True")

    def test_reader_sees_whole_blobs(self, blobs: Blobs) -> None:
        """Data, metadata and generation read are always of one write, however many are made meanwhile."""
        made = {blobs.put("a", b"0" * 5000, metadata={"n": "0"}): "0"}

        def work(thread: int) -> str:
            for turn in range(8):
                if thread < 2:
                    n = str(thread * 100 + turn)
                    made[blobs.put("a", n.encode() * 5000, metadata={"n": n})] = n
                else:
                    seen.append(read_blob(blobs, "a"))
            return ""

        seen: list[Blob] = []
        together(work)

        assert [(made[b.generation].encode() * 5000, made[b.generation]) for b in seen] == [
            (b.data, b.metadata["n"]) for b in seen
        ]


def read_blob(blobs: Blobs, name: str) -> Blob:
    """Return a blob that must be there."""
    blob = blobs.get(name)
    assert blob is not None
    return blob


def together(work: Callable[[int], str]) -> dict[int, str]:
    """Run `work` in eight threads at once; returns what those that met no Conflict returned, by number."""
    gate = Barrier(THREADS)

    def run(number: int) -> tuple[int, str] | None:
        gate.wait(30)
        with contextlib.suppress(Conflict):
            return number, work(number)
        return None

    with ThreadPoolExecutor(THREADS) as pool:
        return dict(filter(None, pool.map(run, range(THREADS))))
