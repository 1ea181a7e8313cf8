"""``onesided bench broadcast``: paper 003's sweep over message sizes and numbers of ranks.

The first 2, 3, ... ranks of the job broadcast from rank 0 while the others sleep. Beside the times
stand those that LogGP predicts, with parameters measured here, and for every pair of a tree and a
linear broadcast where the one overtakes the other, in the sweep and in the model.

A time goes from a barrier until the last rank has the data, or the root knows that all have; no
two broadcasts run in a row, because the second would begin before the first has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from mpi4py import MPI

from onesided.apps.bench.memory import receiving
from onesided.apps.bench.ranks import counted, node_of_ranks
from onesided.apps.bench.selection import hints
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import Variant
from onesided.apps.cli.failures import user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import METHOD, Listing, Report, Row, byte_count
from onesided.apps.cli.statistics import ratio
from onesided.apps.papers.broadcasters import (
    BINOMIAL,
    LINEAR,
    ONE_SIDED,
    PASSIVE,
    labels_of,
    makers,
)
from onesided.apps.papers.forecast import LogGP, crossing, parameters, predicted

OVERTAKES = {BINOMIAL: LINEAR, PASSIVE: ONE_SIDED}
PREDICTED = "predicted_s"
FEW = 8  # ranks up to which every number is tried, and steps of so many beyond
REMARK = (
    "Times go from a barrier until the last rank has the data; vs mpi: medians of the ratios of "
    "times taken in the same round. predicted: LogGP, of the paper's own one-sided and passive."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where wrong data came."""
    variants = labels_of(options.comm)
    counts = counted(comm.size, options.ranks_list, _counts(comm.size))
    nodes = node_of_ranks(comm)
    pattern = {"ranks": comm.size, "counts": counts, "nodes": len(set(nodes))}
    report = Report("bench broadcast", options.settings(), pattern, remarks=[REMARK],
                    across="bytes", by="ranks")  # fmt: skip
    networks, reasons = _measured(comm, nodes)
    cases = [
        Case({"ranks": str(count), "bytes": byte_count(size)}, variants,
             partial(_opened, size, networks, options), count)
        for count in counts for size in sorted(set(options.sizes))
    ]  # fmt: skip
    sweep(comm, options, report, cases, "broadcasting")
    found = list(crossings(report.rows))
    report.pattern = {**report.pattern, "crossings": found}
    report.listings = {
        f"parameters of {name}": _listing(name, each) for name, each in networks.items()
    }
    report.remarks += [f"No model of {name}: {why}" for name, why in reasons.items()]
    report.remarks += _sentences(found)
    return report.end(comm, options)


def _opened(
    size: int, networks: Mapping[str, LogGP], options: Options,
    comm: MPI.Intracomm, stack: ExitStack,
) -> Make:
    """Collective. The message, and what makes each variant of it."""  # fmt: skip
    message, known = receiving(comm, options.memory, size, stack), makers()

    def make(labels: Labels) -> Variant:
        method, order = labels[METHOD], labels.get("order", "")
        variant = known[method](comm, message, order, hints(options))
        told = predicted(networks, comm.size, method, order, size)
        more = {} if told is None else {PREDICTED: told}
        return replace(variant, metrics={**variant.metrics, **more})

    return make


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


def crossings(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Local. From where on one method in an order is not slower than another, measured and in the
    model: over the bytes for every number of ranks, then over the ranks for every length.

    ``over`` is ``"bytes"``, and then ``at`` is the number of ranks, or ``"ranks"``, and then it is
    the length in bytes. None: nowhere in the sweep; ``modelled`` is false where no model applies.
    """
    timed: dict[tuple[str, str], dict[tuple[int, int], Row]] = {}
    for row in rows:
        if not row.reason:
            key = row.method, row.labels.get("order", "")
            timed.setdefault(key, {})[int(row.labels["ranks"]), row.nbytes] = row
    for (method, order), mine in timed.items():
        theirs = timed.get((OVERTAKES.get(method, ""), ""), {})
        places = sorted(mine.keys() & theirs.keys())
        for axis, over in enumerate(("bytes", "ranks")):
            for at in dict.fromkeys(place[axis] for place in places):
                here = [place for place in places if place[axis] == at]
                if len(here) <= axis:  # one number of ranks tells nothing about ranks
                    continue
                pairs = [(mine[place], theirs[place]) for place in here]
                xs = [float(place[1 - axis]) for place in here]
                modelled = all(PREDICTED in row.metrics for pair in pairs for row in pair)
                models = [
                    one.metrics[PREDICTED] / other.metrics[PREDICTED] for one, other in pairs
                ] if modelled else []  # fmt: skip
                yield {
                    "method": method, "order": order, "other": OVERTAKES[method], "over": over,
                    "at": at, "predicted": crossing(xs, models) if modelled else None,
                    "measured": crossing(xs, [ratio(a.times, b.times) for a, b in pairs]),
                    "modelled": modelled,
                }  # fmt: skip


def _sentences(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Local. One for each pair and direction of the sweep."""
    groups: dict[str, list[str]] = {}
    for each in found:
        heading = f"{each['method']} {each['order']} overtakes {each['other']}"
        over_bytes = each["over"] == "bytes"
        at = f"on {each['at']} ranks" if over_bytes else f"with {byte_count(each['at'])}"
        measured, model = (_from(each[key], over_bytes) for key in ("measured", "predicted"))
        model = f"model: {model}" if each["modelled"] else "no model"
        groups.setdefault(heading, []).append(f"{at}: {measured} ({model})")
    return [f"{heading}: {'; '.join(phrases)}" for heading, phrases in groups.items()]


def _from(x: float | None, over_bytes: bool) -> str:
    if x is None:
        return "no crossing"
    return f"from {byte_count(round(x)) if over_bytes else f'{x:.3g} ranks'} on"
