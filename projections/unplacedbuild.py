"""Builds over a log without one sequence: every job's events are read once, and then only what came since, by its lists.

The build's own sequence is made here, as the projector of such a log makes one. What no message told of is written down as owed
to the bus before it is in the live views, since after that nothing would find it: a rebuild publishes nothing itself.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice

from jobevents.blobs import Blobs
from jobevents.emit import Emitter
from jobevents.errors import Conflict
from jobevents.log import Record
from jobevents.telemetry import Counts
from projections.arrears import Arrears, Owed
from projections.bulk import THREADS
from projections.heights import Heights
from projections.indexcensus import IndexCensus
from projections.indexswap import IndexSwap
from projections.inflow import Inflow
from projections.mending import look_at_status
from projections.positions import Positions
from projections.projector import Projector
from projections.rebuild import TRIES, Builder
from projections.statusswap import Place, version_in
from projections.view import View

_HELD = 5000  # events read before they are projected: about 2 MB
_TOGETHER = 500  # statuses read at once


class UnplacedBuilder(Builder):
    """A Builder for such a log. Promoting costs a list of the log, twice, beside what it costs elsewhere.

    Statuses are never replaced by older ones. An entry of the index may be, if its job went on while the index was swapped: the
    log is listed again after that, and what came meanwhile is taken in as by any projector, before the call returns.
    """

    def __init__(
        self,
        emitter: Emitter,
        blobs: Blobs,
        prefix: str,
        build: str,
        *,
        everything: Callable[[], Iterator[Record]],
        live_index: Callable[[], View],
        arrears: Arrears | None,
        threads: int = THREADS,
    ) -> None:
        """Write nothing yet.

        Args:
            everything: reads all histories from wherever that is cheapest.
            live_index: the live index as a view.
            arrears: writes down what is owed to the bus; None: there is none.
        """
        self._inflow = Inflow(emitter.log)
        super().__init__(emitter, self._inflow, blobs, prefix, build, threads=threads)
        self._everything = everything
        self._live_index = live_index
        self._arrears = arrears
        self._heights = Heights()  # of each job: how far the build has it

    def told_by(self) -> Callable[[str], int] | None:
        """Return what says of a built status that all of it is on the bus, or owed to it: so it is once it is swapped in."""
        return lambda job_id: self._inflow.taken(job_id).version

    def project(self, views: Sequence[View], on_progress: Callable[[int, int], None] = lambda _, __: None) -> None:
        """Project all histories into `views`, made below `root`; of a build that was kept, what came since.

        Raises: as Builder.project.
        """
        self._pass_over(self.root)
        self._projector = self._projector_of(views, self.root)
        if not self._heights.any():
            self._feed(self._everything(), on_progress)
        self._catch_up()

    def swap_statuses(self, positions: Positions, on_done: Callable[[], None] = lambda: None) -> None:
        """Write down what is owed, and swap as elsewhere."""
        self._owe()
        super().swap_statuses(positions, on_done)

    def swap_index(self) -> None:
        """Write down what is owed, and swap as elsewhere."""
        self._owe()
        super().swap_index()

    def close(self) -> None:
        """End the threads, and remove what was kept on disk."""
        self._heights.close()
        super().close()

    def _projector_of(self, views: Sequence[View], prefix: str) -> Projector:
        for job_id, version in self._built(prefix):
            self._heights.add({job_id: version})
        return self._over(views, prefix)

    def _over(self, views: Sequence[View], prefix: str) -> Projector:
        feed = self._inflow
        return Projector(feed, views, alarm=feed, blobs=self._blobs, prefix=prefix, counts=Counts())

    def _built(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield how far each job is in the views below a prefix: by the index, or where there is none by the statuses."""
        found = False
        for entry in IndexCensus(self._blobs, prefix).everything():
            found = True
            yield entry
        statuses = Place(f"{prefix}/jobs/")
        ids = iter(()) if found else statuses.job_ids(self._blobs)
        while batch := list(islice(ids, _TOGETHER)):
            for job_id, blob in zip(batch, self._bulk.get(map(statuses.name, batch)), strict=True):
                yield job_id, (version_in(blob) or 0) if blob else 0

    def _feed(self, records: Iterable[Record], on_progress: Callable[[int, int], None] = lambda _, __: None) -> None:
        done = 0
        for job_id, group in groupby(records, key=_job_id):
            own = list(group)
            self._inflow.add(own)
            self._heights.add({job_id: own[-1].version})
            done += len(own)
            if self._inflow.depth() >= _HELD:
                while self._projector.step(leased=False):
                    pass
                self._drop()
                on_progress(done, 0)

    def _catch_up(self) -> None:
        self._feed(self._log.by_job(after=self._heights.version))
        super()._catch_up()
        self._drop()
        self._report.position = 0  # the place in a sequence of this process says nothing to others

    def _drop(self) -> None:
        self._inflow.drop(min(self._projector.positions().values()))

    def _owe(self) -> None:
        """Write down the events that are in the build and that nobody may have published: those that no live view has."""
        if self._arrears is None:
            return
        with Heights() as live:
            live.add(dict(IndexCensus(self._blobs, self._prefix).everything()))
            known = ((job_id, live.version(job_id), version) for job_id, version in self._heights.items())
            behind = (one for one in known if one[1] < one[2])
            while batch := list(islice(behind, _TOGETHER)):
                owed = [one for one in self._bulk.map(self._owed, batch) if one is not None]
                if owed:
                    self._arrears.owe(owed)

    def _owed(self, one: tuple[str, int, int]) -> Owed | None:
        """Return what is owed of a job of which the live index has less: a read of its status, or two."""
        job_id, known, version = one
        known = max(known, look_at_status(self._blobs, self._prefix, job_id).told)
        if known >= version or (not known and self._arrears is not None and self._arrears.is_settled(job_id)):
            return None
        return Owed(job_id, known, version)

    def _swapped(self, swap: IndexSwap) -> int:
        for _ in range(TRIES):
            self._catch_up()
            count = swap.run()
            if count is not None:
                self._follow()
                return count
        raise Conflict("the live index is written all the time; rebuild again")

    def _follow(self) -> None:
        """Take into the live index what came while it was swapped."""
        self._inflow = Inflow(self._log)  # another sequence: the index begins at its start
        self._projector = self._over([self._live_index()], self._prefix)
        self._feed(self._log.by_job(after=self._heights.version))
        self._projector.run_once()


def _job_id(record: Record) -> str:
    return record.job_id
