"""``onesided bench broadcast``: paper 003's sweep over message sizes and numbers of ranks.

The first 2, 3, ... ranks of the job broadcast from rank 0 while the others sleep. Beside the times
stand those that LogGP predicts, with parameters measured here, and for every pair of a tree and a
linear broadcast where the one overtakes the other, in the sweep and in the model.

A time goes from a barrier until the last rank has the data, or the root knows that all have; no
two broadcasts run in a row, because the second would begin before the first has ended.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict

from mpi4py import MPI

from onesided.apps.bench.memory import receiving
from onesided.apps.bench.ranks import counted, node_of_ranks
from onesided.apps.bench.selection import BASELINE, hints
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import Variant
from onesided.apps.cli.failures import user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import METHOD, Listing, Report, Row, byte_count
from onesided.apps.cli.statistics import Verdict
from onesided.apps.papers.broadcasters import ORDERS, Entrant, Track, correct, entrants
from onesided.apps.papers.forecast import Crossing, Forecast, LogGP, crossings, parameters
from onesided.collectives.hints import Hints

NAMES = (METHOD, "order")
FEW = 8  # ranks up to which every number is tried, and steps of so many beyond
REMARK = (
    "Times go from a barrier until the last rank has the data; vs mpi: medians of the ratios of "
    "times taken in the same round. predicted: LogGP, for what is sent between nodes (rma-linear, "
    "rma-binomial) or to all ranks (one-sided, passive); --info ranks_per_node=1 takes every rank "
    "for a node."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where wrong data came."""
    field = entrants(options.comm, ORDERS)
    counts = counted(comm.size, options.ranks_list, _counts(comm.size))
    sizes = sorted(set(options.sizes))
    with user_errors():
        ranks_per_node = Hints.of(hints(options)).ranks_per_node
    nodes = node_of_ranks(comm, ranks_per_node)
    pattern = {"ranks": comm.size, "counts": counts, "nodes": len(set(nodes))}
    report = Report("bench broadcast", options.settings(), pattern, remarks=[REMARK],
                    across="bytes", by="ranks")  # fmt: skip
    networks, reasons = _measured(comm, nodes)
    forecast = Forecast(networks, nodes)
    cases = [_case(field, count, size, options, forecast) for count in counts for size in sizes]
    sweep(comm, options, report, cases, "broadcasting")
    times = {_place(row): row.times for row in report.rows if not row.reason}
    found = crossings(forecast, field, sizes, counts, times) if comm.rank == 0 else []
    report.pattern = {**report.pattern, "crossings": [asdict(each) for each in found]}
    report.listings = {
        f"parameters of {name}": _listing(name, each) for name, each in networks.items()
    }
    report.remarks += [f"No model of {name}: {why}" for name, why in reasons.items()]
    report.remarks += _sentences(found)
    return report.end(comm, options)


def _place(row: Row) -> tuple[int, int, str]:
    """Local. Ranks, bytes and name of a variant."""
    name = " ".join(row.labels[label] for label in NAMES if label in row.labels)
    return int(row.labels["ranks"]), row.nbytes, name


def _case(
    field: Sequence[Entrant], ranks: int, size: int, options: Options, forecast: Forecast
) -> Case:
    """Local. All variants with one size on so many ranks."""
    known = {each.name: each for each in field}
    variants = [
        {METHOD: each.method, **({"order": each.order} if each.order else {})} for each in field
    ]

    def opened(comm: MPI.Intracomm, stack: ExitStack) -> Make:
        memory = receiving(comm, options.memory, size, stack)
        track, numbers = Track(comm, memory, hints(options)), itertools.count()

        def make(labels: Labels) -> Variant:
            entrant = known[" ".join(labels.values())]
            runner = entrant.ready(track)

            def check() -> Verdict:
                return Verdict(float(not correct(track, runner, next(numbers))), 0.0)

            predicted = forecast.time(entrant.method, entrant.order, ranks, size)
            metrics: Mapping[str, float] = {} if predicted is None else {"predicted_s": predicted}
            return Variant(runner.call, check, free=runner.free, metrics={**metrics, "bytes": size},
                           set_up=entrant.name != BASELINE)  # fmt: skip

        return make

    return Case({"ranks": str(ranks), "bytes": byte_count(size)}, variants, opened, ranks)


def _counts(size: int) -> list[int]:
    """Local. The usual numbers of ranks."""
    return [*range(2, min(size, FEW) + 1), *range(2 * FEW, size + 1, FEW), size]


def _measured(
    comm: MPI.Intracomm, nodes: Sequence[int]
) -> tuple[dict[str, LogGP], dict[str, str]]:
    """Collective. The parameters of the model, and of which method there are none, and why.

    Between rank 0 and a rank off its node if there is one.
    """
    if comm.size == 1:
        return {}, {}
    far = next((rank for rank in range(1, comm.size) if nodes[rank] != nodes[0]), 1)
    with user_errors():
        return parameters(comm, far)


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
