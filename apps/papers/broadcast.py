"""``onesided bench broadcast``: paper 003's sweep over message sizes and numbers of ranks.

The first 2, 3, ... ranks of the job broadcast from rank 0 while the others sleep. Beside the times
stand those that LogGP predicts, with parameters measured here, and for every pair of a tree and a
linear broadcast where the one overtakes the other, in the sweep and in the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median

from mpi4py import MPI

from onesided.apps.bench.ranks import counted
from onesided.apps.bench.selection import hints
from onesided.apps.bench.store import Part, Parts
from onesided.apps.cli.failures import user_errors
from onesided.apps.cli.options import Options, Picture
from onesided.apps.cli.progress import console, progress
from onesided.apps.cli.report import Listing, Report, byte_count
from onesided.apps.modelling.nodes import node_of_ranks
from onesided.apps.papers.broadcast_sweep import Sweep
from onesided.apps.papers.broadcasters import entrants
from onesided.apps.papers.forecast import Crossing, Forecast, crossings, parameters
from onesided.apps.papers.options import PAPER_SIZES
from onesided.apps.report.chart import save
from onesided.apps.report.figure import Point, drawn
from onesided.apps.report.quantities import RANKS, SIZE, TIME
from onesided.collectives.hints import Hints
from onesided.collectives.modelling.loggp import LogGP

# Figures 13 to 16 of paper 003: the time of a broadcast over message size and number of ranks.

MEBI = 1 << 20
#: Number of ranks, bytes and name of a contestant; seconds.
Times = Mapping[tuple[int, int, str], Sequence[float]]


@dataclass(frozen=True)
class Figure:
    """One of the four: over the message sizes for one number of ranks, or the other way round."""

    number: int
    sizes: Sequence[int]
    counts: Sequence[int]
    over_sizes: bool

    def draw(self, picture: Picture, names: Sequence[str], times: Times) -> None:
        """Local. A line for every contestant that was timed; times are medians."""
        places = [(count, size) for count in self.counts for size in self.sizes]
        lines: dict[str, list[Point]] = {}
        for name in names:
            for count, size in places:
                if (count, size, name) in times:
                    point = (size if self.over_sizes else count, median(times[count, size, name]))
                    lines.setdefault(name, []).append(point)
        fixed = f"{self.counts[0]} ranks" if self.over_sizes else byte_count(self.sizes[0])
        title = f"Broadcast, {fixed} (as Figure {self.number})"
        across = SIZE if self.over_sizes else RANKS
        save(picture.of(str(self.number)), title, [drawn(title, across, TIME, lines)])


def figures(sizes: Sequence[int], counts: Sequence[int]) -> list[Figure]:
    """Local. Those that a sweep has data for.

    13 and 14 are for sizes from 1 MiB on, 15 and 16 for smaller ones; the first of each two is
    over the sizes at the largest number of ranks, the second over the ranks at the largest size.
    """
    found = []
    for number, chosen in (
        (13, sorted(size for size in set(sizes) if size >= MEBI)),
        (15, sorted(size for size in set(sizes) if size < MEBI)),
    ):
        if chosen:
            found.append(Figure(number, chosen, [max(counts)], True))
            found.append(Figure(number + 1, [chosen[-1]], sorted(set(counts)), False))
    return found


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
    out = console(options.terminal) if comm.rank == 0 else None
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
    share = options.seconds / (len(sizes) * len(counts))
    sweep = Sweep(parts, options, field, info, timeouts, forecast, share)
    with progress(out, "broadcasting", len(counts) * len(sizes) * options.iterations) as tick:
        for count in counts:
            sweep.among(comm, count, sizes, tick)
    found = crossings(forecast, field, sizes, counts, sweep.times) if comm.rank == 0 else []
    report.pattern = {**report.pattern, "crossings": [asdict(each) for each in found]}
    report.listings = {
        f"parameters of {name}": _listing(name, each) for name, each in networks.items()
    }
    report.remarks += _sentences(found)
    if comm.rank == 0 and options.picture is not None:
        for figure in figures(sizes, counts):
            figure.draw(options.picture, [each.name for each in field], sweep.times)
    report.finish(comm, out, options.json)
    return report.code(comm)


def _counts(size: int) -> list[int]:
    """Local. The usual numbers of ranks."""
    return [*range(2, min(size, FEW) + 1), *range(2 * FEW, size + 1, FEW), size]


def _measured(
    comm: MPI.Intracomm, nodes: Sequence[int], timeouts: tuple[float, float], part: Part
) -> None:
    """Collective. The parameters of the model, and of which method there are none."""
    networks, reasons = _networks(comm, nodes, timeouts)
    part.pattern["networks"] = {name: asdict(network) for name, network in networks.items()}
    part.remarks += [f"No model of {name}: {why}" for name, why in reasons.items()]


def _networks(
    comm: MPI.Intracomm, nodes: Sequence[int], timeouts: tuple[float, float]
) -> tuple[dict[str, LogGP], dict[str, str]]:
    """Collective. Parameters by method, between rank 0 and a rank off its node if there is one."""
    if comm.size == 1:
        return {}, {}
    far = next((rank for rank in range(1, comm.size) if nodes[rank] != nodes[0]), 1)
    with user_errors():
        return parameters(comm, far, timeouts)


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
