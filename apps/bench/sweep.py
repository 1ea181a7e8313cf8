"""Cases times variants: one way to make, refuse, set up, time, check and keep them, for every
benchmark.

A case is one problem on so many ranks. Its variants, which differ by their labels, are made ready
one after the other, with the seconds that took; what this MPI cannot do is kept as a reason. Then
they take turns (:mod:`onesided.apps.bench.timing`), are freed, and give a row each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from mpi4py import MPI

from onesided.apps.bench.foreign import ForeignError
from onesided.apps.bench.store import Part, Parts
from onesided.apps.bench.timing import Timings, Variant, clocked, interleaved, repeats
from onesided.apps.cli.failures import (
    LONGEST_WAIT,
    CommandError,
    Found,
    closing,
    rest,
    user_errors,
    words,
)
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import progress
from onesided.apps.cli.report import BASELINE, METHOD, Report, Row, duration
from onesided.apps.report.figures import draw
from onesided.collectives import MPIError, ResourceError, UnsupportedError

SETUP_SHARE = 0.3  # of the time, for set-ups that are repeated

Labels: TypeAlias = Mapping[str, str]
#: Makes a variant by its labels, Collective.
Make: TypeAlias = Callable[[Labels], Variant]


@dataclass(frozen=True)
class Case:
    """A problem, and the variants that solve it.

    ``labels`` are those of all its rows, the ``variants`` have more. ``open``: Collective, makes
    what variants share, freed with the stack, and gives what makes a variant. ``ranks``: the first
    so many of the job; 0 for all. ``against``: methods that every row is compared with.
    ``setups``: how often a variant is set up; ``region``: seconds that are timed in a row at
    least, 0 for single calls. ``rest``: the name of what the parts of a time leave of it. ``told``:
    called with the part of the results that has the rows, to add to it. ``piece``: of which variant
    alone it is, its last one. ``keep`` false: it writes files of its own, and is done in any case.
    """

    labels: Labels
    variants: Sequence[Labels]
    open: Callable[[MPI.Intracomm, ExitStack], Make]
    ranks: int = 0
    against: Sequence[str] = (BASELINE,)
    setups: int = 1
    region: float = 0.0
    rest: str = ""
    piece: str = ""
    keep: bool = True
    told: Callable[[Part], object] = lambda part: None

    @property
    def name(self) -> str:
        """Of its part of the results."""
        more = [str(self.ranks)] if self.ranks else []
        more += [self.piece] if self.piece else []
        return " ".join([*self.labels.values(), *more]) or "all"


@dataclass
class _Ready:
    """A variant with its seconds; ``reason``: why there is none."""

    labels: Labels
    variant: Variant | None = None
    inits: list[float] = field(default_factory=list)
    frees: list[float] = field(default_factory=list)
    reason: str = ""

    def free(self, comm: MPI.Intracomm) -> None:
        """Collective. A second call does nothing."""
        if self.variant is not None:
            made, self.variant = self.variant, None
            self.frees.append(clocked(comm, made.free)[1])


def sweep(
    comm: MPI.Intracomm, options: Options, report: Report, cases: Sequence[Case], title: str,
    inputs: Sequence[Path] = (),
) -> None:
    """Collective. The rows of all cases; what is kept beside ``--json`` is not measured again, if
    the files that options name, and other ``inputs``, are the same.

    ``--seconds`` is shared by all of them, each measures for at most half of ``--limit``.
    :class:`CommandError` where nothing that was asked for can be done here.
    """
    names = Counter(case.name for case in cases)
    if twice := [name for name, count in names.items() if count > 1]:
        raise CommandError(f"two cases would be told as one: {', '.join(twice)}")
    turns = options.iterations * sum(len(case.variants) for case in cases)
    report.draw = draw
    parts = Parts(comm, report, options.json, [*options.inputs(), *inputs])
    with progress(comm, options, title, turns) as tick:
        for ranks in sorted({case.ranks or comm.size for case in cases}):
            mine = [case for case in cases if (case.ranks or comm.size) == ranks]

            def work(sub: MPI.Intracomm, mine: Sequence[Case] = mine) -> None:
                for case in mine:
                    seconds = min(options.seconds / len(cases), options.limit / 2)
                    for each in _pieces(case) if case.name in parts.broken else [case]:
                        adds = partial(measure, sub, each, options, seconds, tick)
                        if each.piece and each.name in parts.broken:
                            adds = partial(_given_up, each, options)
                        parts.add(each.name, adds, keep=each.keep)

            if ranks == comm.size:
                work(comm)
            else:
                among(comm, range(ranks), work)
    refused = {f"{row.method}: {row.reason}": None for row in report.rows if row.reason}
    asked = str(vars(options).get("comm", "")).split(",")
    opponents = {BASELINE}.union(*(case.against for case in cases))
    done = any(row.times and (row.method in asked or row.method not in opponents)
               for row in report.rows)
    if comm.bcast(bool(refused) and not done):
        raise CommandError("; ".join(comm.bcast(list(refused))))


def among(
    comm: MPI.Intracomm, members: Sequence[int], work: Callable[[MPI.Intracomm], Found]
) -> Found:
    """Collective. What ``work``, called on these ranks alone with a communicator of them, gives
    rank 0, which is one of them; the others sleep.

    :class:`CommandError` on all ranks, also for what those that slept cannot know. An error that a
    rank turns out to have alone, because the others do not come, ends the job.
    """
    taking_part = comm.rank in members
    sub: Any = comm.Split(0 if taking_part else MPI.UNDEFINED, comm.rank)
    found, trouble = None, ""
    if taking_part:
        try:
            with user_errors():
                found = work(sub)
        except CommandError as error:
            trouble = str(error)
            if not rest(comm, LONGEST_WAIT):
                raise RuntimeError(f"rank {comm.rank} alone: {trouble}") from error
    if not trouble:
        rest(comm)
    if taking_part:
        sub.Free()
    result, trouble = comm.bcast((found, trouble))
    if trouble:
        raise CommandError(trouble)
    told: Found = result
    return told


def _pieces(case: Case) -> list[Case]:
    """Local. A case in which a job has ended, variant by variant, each beside the first one."""
    first, *others = case.variants
    pairs = [[first], *([first, each] for each in others)]
    return [replace(case, variants=pair, piece=_name(pair[-1])) for pair in pairs]


def _given_up(case: Case, options: Options, part: Part) -> None:
    """Local. Why a piece has no times."""
    why = f"its job died, or was held up for {duration(options.limit)}"
    part.rows.append(Row({**case.labels, **case.variants[-1]}, reason=why))


def measure(
    comm: MPI.Intracomm, case: Case, options: Options, seconds: float,
    tick: Callable[[], object], part: Part,
) -> None:
    """Collective. Add the rows of a case to a part of the results."""
    with closing(comm) as stack:
        with user_errors():
            make = case.open(comm, stack)
            ready = [_prepared(comm, make, labels) for labels in case.variants]
        for each in ready:
            stack.callback(each.free, comm)
        if case.setups > 1:
            budget = SETUP_SHARE * seconds / max(1, len(ready))
            for each in ready:
                _set_up_again(comm, make, each, case.setups, budget)
            seconds *= 1 - SETUP_SHARE
        entered = [
            _named(comm, each.labels, each.variant, case.region)
            for each in ready if each.variant is not None
        ]  # fmt: skip
        found = interleaved(
            comm, entered, iterations=options.iterations, seconds=seconds, tick=tick
        )
        for each in reversed(ready):
            each.free(comm)
    rows = _rows(case, ready, entered, found)
    part.rows += rows[-1:] if case.piece else rows
    case.told(part)


def _prepared(comm: MPI.Intracomm, make: Make, labels: Labels) -> _Ready:
    try:
        variant, taken = clocked(comm, partial(make, labels))
    except (UnsupportedError, ResourceError, MPIError, ForeignError) as error:
        return _Ready(labels, reason=words(error))
    return _Ready(labels, variant, [max(0.0, taken - variant.extra)])


def _set_up_again(comm: MPI.Intracomm, make: Make, each: _Ready, count: int, budget: float) -> None:
    """Collective. As often as there is time; the last one takes part."""
    if each.variant is None or each.variant.set_up is not True:
        return
    for _ in range(min(count, 1 + int(budget / max(each.inits[0], 1e-9))) - 1):
        each.free(comm)
        again = _prepared(comm, make, each.labels)
        if again.variant is None:
            raise CommandError(f"{' '.join(each.labels.values())} could be made once only")
        each.variant = again.variant
        each.inits += again.inits


def _name(labels: Labels) -> str:
    return " ".join(labels.values())


def _named(comm: MPI.Intracomm, labels: Labels, variant: Variant, region: float) -> Variant:
    """Collective. With its name, and as many calls in a row as the clock wants."""
    count = variant.repeats
    if region and variant.own is None:
        count = repeats(comm, variant.call, region, on_root=variant.on_root)
    return replace(variant, name=_name(labels), repeats=count)


def _rows(
    case: Case, ready: Sequence[_Ready], entered: Sequence[Variant], found: Timings
) -> list[Row]:
    """Local. One for every variant, or why it is missing."""
    variants = {each.name: each for each in entered}
    against: dict[str, Any] = {}
    for each in ready:
        name = _name(each.labels)
        method, times = each.labels.get(METHOD, ""), found.times.get(name)
        right = name not in found.verdicts or found.verdicts[name].passed
        if method in case.against and times is not None and right:  # the best of one name
            against[method] = min(against.get(method, times), times, key=median)
    rows = []
    for each in ready:
        labels, name = {**case.labels, **each.labels}, _name(each.labels)
        if name not in found.times:
            rows.append(Row(labels, reason=each.reason))
            continue
        variant, method = variants[name], labels.get(METHOD, "")
        metrics, parts = dict(variant.metrics), found.parts[name]
        if case.rest and parts:
            left = zip(found.times[name], *parts.values(), strict=True)
            parts = {**parts, case.rest: [whole - sum(inside) for whole, *inside in left]}
        row = Row(
            labels, found.times[name], None, int(metrics.pop("bytes", 0)), against,
            parts, metrics, found.verdicts.get(name), ranks=found.ranks.get(name, ()),
            used="" if variant.used == method else variant.used, case=case.name,
        )  # fmt: skip
        if variant.set_up is True:
            row.setup = median(each.inits) + median(each.frees)
            if len(each.inits) > 1:
                row.metrics |= {"init_times_s": each.inits, "free_times_s": each.frees}
        elif variant.set_up is not False:
            row.setup = variant.set_up + median(each.frees)
        rows.append(row)
    return rows
