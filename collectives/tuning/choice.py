"""The decision of ``method="auto"``: from the file, by measurement, or by the model.

The same on all ranks by construction: rank 0 reads the file and tells the others, measured numbers
are those of the slowest rank, and what is decided from the same numbers is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from onesided.collectives.agreement import agreed
from onesided.collectives.context import Context
from onesided.collectives.errors import ResourceError, UnsupportedError
from onesided.collectives.hints import ESTIMATE, Hints
from onesided.collectives.persistent import Persistent
from onesided.collectives.registry import Method
from onesided.collectives.tuning.decisions import open_tuning
from onesided.collectives.tuning.race import Race
from onesided.collectives.tuning.record import Record
from onesided.collectives.tuning.situation import machine

R = TypeVar("R", bound=Persistent)


def choose(
    context: Context,
    situation: str,
    candidates: Sequence[Method[R]],
    trial: Callable[[Method[R]], R],
    build: Callable[[Method[R]], R],
    estimate: Callable[[Sequence[str]], Record],
    hints: Hints,
) -> R:
    """Collective. The request of the best candidate for this situation, made by ``build``.

    ``trial`` is a collective call that makes a request to be tried, on memory of its own, and
    ``estimate`` one that asks the model instead, where the hints say so, and where the caller
    expects too few rounds for any measurement. With ``expected_iterations`` of the hints set-up
    counts as well. What has been measured is kept.

    Raises :class:`UnsupportedError` where none of them works here.
    """
    by_name = {method.name: method for method in candidates}
    record = _recall(context, situation)
    if record is None or not record.covers(by_name):
        record = None
        if hints.effort != ESTIMATE:
            record = _measured(context, situation, candidates, trial, hints)
        if record is None:
            record = estimate(list(by_name))
    reasons = dict(record.refused)
    for name in record.ranking(by_name, hints.expected_iterations):
        try:
            return build(by_name[name])
        except (UnsupportedError, ResourceError) as error:
            reasons[name] = str(error)
    words = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    raise UnsupportedError(f"no method works here: {words}")


def _measured(
    context: Context,
    situation: str,
    candidates: Sequence[Method[R]],
    trial: Callable[[Method[R]], R],
    hints: Hints,
) -> Record | None:
    """Collective. What a race tells; kept where every candidate has been tried. None: nothing."""
    race = Race(context.comm, hints.expected_iterations)
    record = race.run(candidates, trial)
    if race.complete:
        _learn(context, situation, record)
    return record if record.costs or record.refused else None


def _recall(context: Context, situation: str) -> Record | None:
    """Collective. What the file of rank 0 says."""
    known = None
    with agreed(context.comm, "recall"):  # a warning may have been made an error
        if context.comm.rank == 0:
            tuning = open_tuning()
            known = None if tuning is None else tuning.recall(machine(), situation)
    found: Record | None = context.comm.bcast(known)
    return found


def _learn(context: Context, situation: str, record: Record) -> None:
    """Collective. Keep a record in the file of rank 0."""
    with agreed(context.comm, "learn"):
        tuning = open_tuning() if context.comm.rank == 0 else None
        if tuning is not None:
            tuning.learn(machine(), situation, record)
