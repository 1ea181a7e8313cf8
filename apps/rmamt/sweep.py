"""All cells, in jobs of their own: a job that fails costs the cell that it was at."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence

from onesided.apps.evidence.job import Ended, run_job
from onesided.apps.failures import USAGE, CommandError
from onesided.apps.rmamt.cell import Cell, Outcome
from onesided.apps.rmamt.cores import unbound
from onesided.apps.rmamt.matrix import Batch, batches
from onesided.apps.rmamt.plan import Plan, Task
from onesided.apps.store import Store

CRASH, ERROR, HANG = "crash", "error", "hang"
STARTING = 60.0  # seconds for a job to begin and to end
LEVEL = "MPI4PY_RC_THREAD_LEVEL"  # mpi4py initializes MPI with it
COMMAND = "bench rma-mt-cells"
LEAST = 5.0  # seconds below which no job is begun
SIGNALS = range(129, 160)  # exit codes of processes that a signal has ended
#: What a job prints where a cell takes too long, and where a signal or MPI itself ends it.
LATE = re.compile(r"^Timeout \(\d", re.MULTILINE)
FATAL = re.compile(
    r"Fatal Python error|Segmentation fault|Assertion (.* )?failed|"
    r"signal (6|7|8|11)\b|SIG(SEGV|ABRT)",
    re.IGNORECASE,
)
#: The last line of what Python prints about an error that ends a rank.
RAISED = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)\b.*$", re.MULTILINE)


class Sweep:
    """Local. Measures what the store has not; ``tick`` is called after every cell."""

    def __init__(
        self, store: Store[Cell, Outcome], plan: Plan, library: str, deadline: float | None = None
    ) -> None:
        self._store, self._plan, self._library = store, plan, library
        self._deadline = deadline
        self._folder = store.path.parent

    def run(
        self, cells: Sequence[Cell], asked: int, most: int, tick: Callable[[int], None]
    ) -> None:
        """All cells that have no outcome. ``asked``: ranks; ``most``: cells of a job."""
        known = self._store.outcomes()
        waiting = [cell for cell in cells if cell not in known]
        for batch in batches(waiting, asked, most):
            self._batch(batch, tick)

    def _batch(self, batch: Batch, tick: Callable[[int], None]) -> None:
        """Jobs until all cells have an outcome, each after the cell where the last one failed."""
        waiting = list(batch.cells)
        while waiting:
            left = self._left()
            if left < LEAST:
                tick(len(waiting))
                return  # without an outcome: another run goes on with them
            ended = self._job(Batch(batch.ranks, batch.level, waiting), left)
            known = self._store.outcomes()
            rest = [cell for cell in waiting if cell not in known]
            if rest and self._left() >= LEAST:
                if ended.code == USAGE:
                    raise CommandError(ended.reason)
                self._store.add(rest[0], failure(ended, self._words()))
                rest = rest[1:]
            tick(len(waiting) - len(rest))
            waiting = rest

    def _job(self, batch: Batch, left: float) -> Ended:
        task, library = self._folder / "cells.json", self._library
        Task(batch.cells, self._plan, library).write(task)
        words = [*COMMAND.split(), str(task), "-o", str(self._store.path)]
        words += ["--ranks", str(batch.ranks)]
        limit = min(left, STARTING + len(batch.cells) * self._plan.limit)
        try:
            variables = {LEVEL: batch.level, **unbound(os.environ)}
            return run_job(words, batch.ranks, None, limit, variables)
        finally:
            task.unlink(missing_ok=True)

    def _left(self) -> float:
        """Seconds that are left of a quick run."""
        if self._deadline is None:
            return float("inf")
        return self._deadline - time.monotonic()

    def _words(self) -> str:
        """What the last job printed."""
        log = self._store.path.with_suffix(".log")
        return log.read_text(errors="replace") if log.exists() else ""


def failure(ended: Ended, printed: str) -> Outcome:
    """Local. Of which kind it is that a job did not come to the end of a cell."""
    if ended.code is None or LATE.search(printed):
        return Outcome(kind=HANG, reason="it did not come to its end in time")
    if ended.code in SIGNALS or FATAL.search(printed):
        found = FATAL.search(printed)
        words = found.group(0) if found else f"ended by signal {ended.code - 128}"
        return Outcome(kind=CRASH, reason=f"{words} ({ended.reason})")
    raised = RAISED.findall(printed)
    words = raised[0] if raised else ended.reason
    return Outcome(kind=ERROR, reason=words or "the job ended before its last cell")
