"""``onesided bench broadcast``: paper 003's sweep over message sizes and numbers of ranks.

The first 2, 3, ... ranks of the job broadcast from rank 0 while the others sleep. Beside the times
stand those that LogGP predicts, with parameters measured here, and for every pair of a tree and a
linear broadcast where the one overtakes the other, in the sweep and in the model.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean

from mpi4py import MPI

from onesided.apps.bench.memory import receiving
from onesided.apps.bench.race import Contestant, race
from onesided.apps.bench.ranks import among, counted, node_of_ranks
from onesided.apps.bench.selection import BASELINE, Candidate, hints, prepare, release
from onesided.apps.bench.store import Part, Parts
from onesided.apps.cli.failures import CommandError, user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import progress
from onesided.apps.cli.report import NOTHING, Listing, Report, Row, byte_count
from onesided.apps.cli.statistics import Verdict
from onesided.apps.papers.broadcasters import Entrant, Runner, Track, correct, entrants
from onesided.apps.papers.figures import Figure, draw
from onesided.apps.papers.forecast import Crossing, Forecast, crossings, parameters
from onesided.apps.papers.loggp import LogGP
from onesided.apps.papers.options import PAPER_SIZES
from onesided.apps.report.quantities import RANKS, TIME
from onesided.apps.report.sections import Sweep, median_time, times_over_bytes
from onesided.collectives.hints import Hints

# Figures 13 to 16 of paper 003: the time of a broadcast over message size and number of ranks.

MEBI = 1 << 20
NAMES = ("method", "order")


def figures(sizes: Sequence[int], counts: Sequence[int]) -> list[Figure]:
    """Local. Those that a sweep has data for; a line for every contestant, of medians.

    13 and 14 are for sizes from 1 MiB on, 15 and 16 for smaller ones; the first of each two is
    over the sizes at the largest number of ranks, the second over the ranks at the largest size.
    """
    over_sizes = times_over_bytes(*NAMES)
    over_ranks = Sweep("ranks", RANKS, median_time, TIME, NAMES)
    large = [size for size in sizes if size >= MEBI]
    small = [size for size in sizes if size < MEBI]
    found = []
    for number, chosen in ((13, large), (15, small)):
        if chosen:
            most = max(chosen)
            found += [
                _figure(number, f"{max(counts)} ranks", over_sizes, chosen, [max(counts)]),
                _figure(number + 1, byte_count(most), over_ranks, [most], counts),
            ]
    return found


def _figure(
    number: int, fixed: str, sweep: Sweep, sizes: Sequence[int], counts: Sequence[int]
) -> Figure:
    title = f"Broadcast, {fixed} (as Figure {number})"
    return Figure(
        str(number),
        title,
        sweep,
        lambda row: row.number("ranks") in counts and row.number("bytes") in sizes,
    )


FEW = 8  # ranks up to which every number is tried, and steps of so many beyond
REMARK = (
    "Times go from a barrier until the last rank has the data; vs mpi: medians of the ratios of "
    "times taken in the same round. predicted: LogGP, for what is sent between nodes (rma-linear, "
    "rma-binomial) or to all ranks (one-sided, passive); --info ranks_per_node=1 takes every rank "
    "for a node."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command."""
    field = entrants(options.comm, options.orders)
    counts = counted(comm.size, options.ranks_list, _counts(comm.size))
    sizes = sorted(set(PAPER_SIZES if options.paper else options.sizes))
    info = hints(options)
    with user_errors():
        ranks_per_node = Hints.of(info).ranks_per_node
    nodes = node_of_ranks(comm, ranks_per_node)
    timeouts = (options.waiter_timeout, options.flush_timeout)
    report = Report(
        "bench broadcast",
        options.settings(),
        {"ranks": comm.size, "counts": counts, "nodes": len(set(nodes))},
        remarks=[REMARK],
    )
    parts = Parts(comm, report, options.json)
    networks = {
        name: LogGP(**each)
        for name, each in parts.add(
            "networks", partial(_measured, comm, nodes, timeouts)
        ).pattern["networks"].items()
    }
    forecast = Forecast(networks, nodes)
    course = Course(
        options, field, info, timeouts, forecast, options.seconds / (len(sizes) * len(counts))
    )
    turns = len(counts) * len(sizes) * options.iterations
    with progress(comm, options, "broadcasting", turns) as tick:
        for count in counts:
            among(comm, range(count), partial(course.sizes, parts, sizes, tick))
    times = {_place(row): row.times for row in report.rows if not row.reason}
    found = crossings(forecast, field, sizes, counts, times) if comm.rank == 0 else []
    report.pattern = {**report.pattern, "crossings": [asdict(each) for each in found]}
    report.listings = {
        f"parameters of {name}": _listing(name, each) for name, each in networks.items()
    }
    report.remarks += _sentences(found)
    draw(comm, options.picture, figures(sizes, counts), report.rows)
    return report.end(comm, options)


def _place(row: Row) -> tuple[int, int, str]:
    """Local. Ranks, bytes and name of a contestant."""
    name = " ".join(row.labels[label] for label in NAMES if row.labels[label] != NOTHING)
    return int(row.labels["ranks"]), row.nbytes, name


@dataclass(frozen=True)
class Course:
    """All contestants with one size after the other, each checked and then in the same rounds.

    A time goes from a barrier until the last rank has the data, or the root knows that all have;
    no two broadcasts run in a row, because the second would begin before the first has ended.
    ``share``: seconds that one size on one number of ranks may take.
    """

    options: Options
    entrants: Sequence[Entrant]
    info: Mapping[str, str]
    timeouts: tuple[float, float]
    forecast: Forecast
    share: float

    def sizes(
        self, parts: Parts, sizes: Sequence[int], tick: Callable[[], None], comm: MPI.Intracomm
    ) -> None:
        """Collective. Every size on these ranks."""
        with ExitStack() as stack:
            memory = receiving(comm, self.options.memory, max(sizes), stack)
            for size in sizes:
                track = Track(comm, memory[:size], self.info, self.timeouts)
                parts.add(f"{comm.size} {size}", partial(self._compare, track, tick))

    def _compare(self, track: Track, tick: Callable[[], None], part: Part) -> None:
        """Collective. All contestants with one size."""
        comm, entered = track.comm, {each.name: each for each in self.entrants}
        made = prepare(comm, list(entered), lambda name: entered[name].ready(track))
        runners = made.made
        numbers = itertools.count()

        def check(runner: Runner) -> Verdict:
            return Verdict(float(not correct(track, runner, next(numbers))), 0.0)

        contestants = [
            Contestant(name, runner.call, partial(check, runner))
            for name, runner in runners.items()
        ]
        try:
            for _ in range(self.options.warm_up):
                for runner in runners.values():
                    comm.Barrier()
                    runner.call()
            iterations = self.options.iterations
            found = race(comm, contestants, iterations=iterations, seconds=self.share, tick=tick)
            wrong = [name for name, verdict in found.verdicts.items() if not verdict.passed]
            if wrong:
                raise CommandError(f"wrong data after {', '.join(wrong)}")
        finally:
            release(comm, made)
        part.rows = [self._row(entered[each.method], each, track, found.times) for each in made]

    def _row(
        self,
        entrant: Entrant,
        candidate: Candidate[Runner],
        track: Track,
        times: Mapping[str, list[float]],
    ) -> Row:
        ranks, nbytes = track.comm.size, track.message.nbytes
        labels = {
            "ranks": str(ranks),
            "bytes": byte_count(nbytes),
            "method": entrant.method,
            "order": entrant.order or NOTHING,
        }
        if candidate.reason:
            return Row(labels, reason=candidate.reason)
        mine = times[entrant.name]
        predicted = self.forecast.time(entrant.method, entrant.order, ranks, nbytes)
        details = {"mean": [fmean(mine)]}
        if predicted is not None:
            details["predicted"] = [predicted]
        return Row(
            labels,
            mine,
            setup=None if entrant.name == BASELINE else candidate.setup + candidate.freeing,
            nbytes=nbytes,
            against={BASELINE: times[BASELINE]},
            details=details,
        )


def _counts(size: int) -> list[int]:
    """Local. The usual numbers of ranks."""
    return [*range(2, min(size, FEW) + 1), *range(2 * FEW, size + 1, FEW), size]


def _measured(
    comm: MPI.Intracomm, nodes: Sequence[int], timeouts: tuple[float, float], part: Part
) -> None:
    """Collective. The parameters of the model, and of which method there are none.

    Between rank 0 and a rank off its node if there is one.
    """
    networks: dict[str, LogGP] = {}
    reasons: dict[str, str] = {}
    if comm.size > 1:
        far = next((rank for rank in range(1, comm.size) if nodes[rank] != nodes[0]), 1)
        with user_errors():
            networks, reasons = parameters(comm, far, timeouts)
    part.pattern["networks"] = {name: asdict(network) for name, network in networks.items()}
    part.remarks += [f"No model of {name}: {why}" for name, why in reasons.items()]


def _listing(name: str, network: LogGP) -> Listing:
    """Local. The parameters of a method, for a person."""
    numbers = {
        "L (us)": network.latency * 1e6,
        "o (us)": network.overhead * 1e6,
        "g (us)": network.gap * 1e6,
        "o_r (us)": network.waiting * 1e6,
        "G (ns)": network.byte_gap * 1e9,
    }
    title = f"LogGP parameters of {name}"
    return Listing(title, dict.fromkeys(numbers, ".4g"), [list(numbers.values())])


def _sentences(found: Sequence[Crossing]) -> list[str]:
    """Local. One for each pair and direction of the sweep."""
    groups: dict[str, list[str]] = {}
    for each in found:
        groups.setdefault(each.heading, []).append(each.phrase)
    return [f"{heading}: {'; '.join(phrases)}" for heading, phrases in groups.items()]
