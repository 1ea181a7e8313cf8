"""The rules that decide claims, by the command that they look at."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import NamedTuple, TypeAlias

from onesided.apps.cli.report import BASELINE, byte_count
from onesided.apps.cli.statistics import Interval
from onesided.apps.report.claim import (
    Finding,
    Outcome,
    Rule,
    Sample,
    Samples,
    Test,
    above,
    at_least,
    at_most,
    below,
    between,
    by_memory,
    decided,
    less,
    of_method,
    same,
    told,
    untested,
    within,
)
from onesided.apps.report.facts import case, iterations, plain_calls
from onesided.apps.report.result import REFERENCE, Entry
from onesided.apps.report.sections_papers import PART, rate
from onesided.apps.report.threads import MAIN, MEASURES, MULTIPLE, SEND, SINGLE, TWO_SIDED, Measure

UNIFORM = "bench alltoallv"
IRREGULAR = "bench patterns"
OVER_PLAIN = "time over that of MPI_Alltoallv"

# Exchanges: a method against the plain call, or against another one. Every method, and every kind
# of memory that it receives into, has a finding.


def against(methods: Sequence[str], test: Test, low: float = 0.0, high: float = math.inf) -> Rule:
    """Local. The time over that of the plain call, at every size from ``low`` to ``high`` bytes."""

    def look(samples: Samples) -> Iterator[Finding]:
        for variant, entries in _variants(samples.most, methods):
            ratios = _over_plain(entries, low, high)
            if ratios:
                yield decided(variant, ratios, test, f"{samples.most}: {OVER_PLAIN}")
            else:
                yield untested(f"no such size was measured with {variant}", variant)

    return Rule(UNIFORM, look, _unmeasured(methods))


def saves(methods: Sequence[str], shares: Mapping[int, float]) -> Rule:
    """Local. These shares of the plain call's time, or more, by size in bytes."""

    def look(samples: Samples) -> Iterator[Finding]:
        for variant, entries in _variants(samples.most, methods):
            pairs = {
                size: (ratio, share)
                for size, ratio in _over_plain(entries).items()
                for wanted, share in shares.items()
                if same(size, wanted)
            }
            if not pairs:
                yield untested(f"none of these sizes was measured with {variant}", variant)
                continue
            outcome = Outcome.every(at_most(1.0 - share)(ratio) for ratio, share in pairs.values())
            by_size = told({size: _saved(*pair) for size, pair in pairs.items()})
            yield Finding(outcome, f"{samples.most}: {by_size}", variant)

    return Rule(UNIFORM, look, _unmeasured(methods))


def pays_at_once(methods: Sequence[str], low: float) -> Rule:
    """Local. The set-up has paid after one iteration, at every size from ``low`` bytes on."""

    def look(samples: Samples) -> Iterator[Finding]:
        calls = plain_calls(samples.most.entries)
        for variant, entries in _variants(samples.most, methods):
            counts: dict[float, int | str] = {}
            parts = []
            for entry in entries:
                size, plain = entry.number("bytes"), calls.get(case(entry))
                ratio, setup = entry.interval(BASELINE), entry.number("setup_s")
                if size is None or plain is None or not within(size, low, math.inf):
                    continue
                count = iterations(entry, plain)
                if count is not None and setup is not None and plain.median and ratio is not None:
                    counts[size] = count
                    parts.append(at_most(1.0 - setup / plain.median)(ratio))
            if counts:
                words = f"{samples.most}: N {told(counts)}"
                yield Finding(Outcome.every(parts), words, variant)
            else:
                yield untested(f"no such size was measured with {variant}", variant)

    return Rule(UNIFORM, look, _unmeasured(methods))


def over_ranks(methods: Sequence[str], size: int, *, ahead: bool) -> Rule:
    """Local. The time over that of the plain call, at ``size`` bytes, on several numbers of ranks.

    ``ahead``: it stays below one; else it comes to be above one on most ranks, and grows.
    """

    def look(samples: Samples) -> Iterator[Finding]:
        found: dict[str, dict[int, Interval]] = {}
        for method in methods:
            for sample in samples.found:
                for variant, entries in _variants(sample, [method]):
                    for ratio in _over_plain(entries, size, size).values():
                        found.setdefault(variant, {})[sample.ranks] = ratio
        for variant, ratios in found.items():
            by_ranks = ", ".join(f"{ratio} on {ranks} ranks" for ranks, ratio in ratios.items())
            if len(ratios) < 2:
                why = f"measured on one number of ranks only: {by_ranks}"
                yield samples.untested(why, variant)
                continue
            first, last = ratios[min(ratios)], ratios[max(ratios)]
            outcome = (
                Outcome.every(map(below(1.0), ratios.values()))
                if ahead
                else Outcome.every((above(1.0)(last), less(first, last)))
            )
            yield Finding(outcome, f"{OVER_PLAIN} at {byte_count(size)}: {by_ranks}", variant)

    return Rule(UNIFORM, look, f"{byte_count(size)} was not measured")


def beside(command: str, pairs: Sequence[tuple[str, str]], test: Test) -> Rule:
    """Local. The time of a method over that of another one, in every case of a command."""

    def look(samples: Samples) -> Iterator[Finding]:
        for one, other in pairs:
            mine, theirs = (
                by_memory(of_method(samples.most.entries, name), f"{one}, {other}")
                for name in (one, other)
            )
            for variant in [variant for variant in mine if variant in theirs]:
                others = {case(entry): entry for entry in theirs[variant]}
                ratios = {
                    " ".join(words for name, words in case(entry) if name != "ranks"): ratio
                    for entry in mine[variant]
                    if case(entry) in others
                    and (ratio := entry.beside(others[case(entry)])) is not None
                }
                if ratios:
                    words = f"{samples.most}: time of {one} over that of {other}"
                    by_case = ", ".join(f"{ratio} at {where}" for where, ratio in ratios.items())
                    yield decided(variant, ratios, test, words, by_case)

    names = "; ".join(" and ".join(pair) for pair in pairs)
    return Rule(command, look, f"not both measured: {names}")


def _variants(sample: Sample, methods: Sequence[str]) -> Iterator[tuple[str, list[Entry]]]:
    for method in methods:
        yield from by_memory(of_method(sample.entries, method), method).items()


def _unmeasured(methods: Sequence[str]) -> str:
    return f"{' and '.join(methods)}: not measured"


def _over_plain(
    entries: Sequence[Entry], low: float = 0.0, high: float = math.inf
) -> dict[float, Interval]:
    """By size."""
    found = {}
    for entry in entries:
        size, ratio = entry.number("bytes"), entry.interval(BASELINE)
        if size is not None and ratio is not None and within(size, low, high):
            found[size] = ratio
    return dict(sorted(found.items()))


def _saved(ratio: Interval, share: float) -> str:
    saved = 1.0 - ratio.median
    word = "saved" if saved >= 0 else "lost"
    return f"{abs(100 * saved):.0f} % {word} (there {100 * share:.0f} % saved), ratio {ratio}"


# Mini-applications: what one-sided communication costs them.


def costs(command: str, way: str, most: float) -> Rule:
    """Local. On every number of ranks at most the share ``most`` of the time of two-sided, on top.

    One rank alone has nobody to communicate with, and decides nothing.
    """

    def look(samples: Samples) -> Iterator[Finding]:
        parts = [
            (over, sample)
            for sample in samples.found
            if sample.ranks > 1
            for entry in of_method(sample.entries, way)
            if (over := entry.interval(REFERENCE)) is not None
        ]
        if parts:
            outcome = Outcome.every(at_most(1.0 + most)(over) for over, _ in parts)
            yield Finding(outcome, ", ".join(f"{_cost(o)} on {s}" for o, s in parts), way)

    return Rule(command, look, f"{way}: not measured on two ranks or more")


def _cost(over: Interval) -> str:
    low, middle, high = (
        f"{100 * (end - 1.0):+.1f} %" for end in (over.low, over.median, over.high)
    )
    return middle if low == high else f"{middle} ({low} to {high})"


# One-sided messages of several threads: some cells beside others.

MANY = 16  # threads of paper 002


class Cells(NamedTuple):
    """Those of a pattern: so many threads, or 0 for the main thread of a job that has no others."""

    pattern: str
    sync: str
    op: str
    threads: int = 1

    def rows(self, entries: Sequence[Entry]) -> dict[float, Entry]:
        """Local. Those that have what the pattern is about, by bytes of a message."""
        threads = str(self.threads or MAIN)
        labels = {"pattern": self.pattern, "sync": self.sync, "op": self.op, "threads": threads}
        labels["level"] = MULTIPLE if self.threads else SINGLE
        mine = [e for e in _labelled(entries, labels) if e.number(MEASURES[self.pattern].value)]
        return _by_size(mine, "message_bytes")

    def __str__(self) -> str:
        count = f", {self.threads} thread{'s'[: self.threads != 1]}" if self.threads else ""
        return f"{self.sync} {self.op}{count}"


Pairs: TypeAlias = Sequence[tuple[Cells, Cells]]


def over_two_sided(pattern: str, sync: str, op: str, threads: int = 1) -> Pairs:
    """Local. Cells over the sends and receives of a job without threads."""
    return [(Cells(pattern, sync, op, threads), Cells(pattern, TWO_SIDED, SEND, 0))]


def over_one_thread(pattern: str, *syncs: str, op: str = "put") -> Pairs:
    """Local. Many threads over one, by synchronization."""
    return [(Cells(pattern, sync, op, MANY), Cells(pattern, sync, op)) for sync in syncs]


def over_sync(
    pattern: str, syncs: Sequence[str], other: str, op: str = "put", threads: Sequence[int] = (1,)
) -> Pairs:
    """Local. Synchronizations over another one."""
    return [
        (Cells(pattern, sync, op, n), Cells(pattern, other, op, n)) for sync in syncs
        for n in threads
    ]  # fmt: skip


def quotient(pairs: Pairs, test: Test, low: float = 0.0, high: float = math.inf) -> Rule:
    """Local. First over second: geometric means over sizes from ``low`` to ``high``."""

    def look(samples: Samples) -> Iterator[Finding]:
        for one, other in pairs:
            yield _of_cells(samples.most, one, other, test, low, high)

    return Rule("bench rma-mt", look, "")


def _of_cells(
    sample: Sample, one: Cells, other: Cells, test: Test, low: float, high: float
) -> Finding:
    variant = f"{one} over {other}"
    crowd = _crowd(sample, max(one.threads, other.threads))
    if crowd:
        return untested(crowd, variant)
    measure = MEASURES[one.pattern]
    mine, theirs = one.rows(sample.entries), other.rows(sample.entries)
    quotients = {
        size: _quotient(measure, mine[size], theirs[size])
        for size in mine
        if size in theirs and within(size, low, high)
    }
    if not quotients:
        return untested("not both measured at such a size", variant)
    found = [(each.median, each.low, each.high) for each in quotients.values()]
    mean = Interval(*(geometric_mean(ends) for ends in zip(*found, strict=True)))
    words = f"{measure.quantity.name}: {mean} on average, {told(quotients)}"
    return Finding(test(mean), words, variant)


def _quotient(measure: Measure, mine: Entry, theirs: Entry) -> Interval:
    """What the rows are about, as sure as the means of their runs."""
    ratio = (mine.number(measure.value) or 0.0) / (theirs.number(measure.value) or 1.0)
    one, other = (theirs, mine) if measure.more else (mine, theirs)
    times = Interval.quotient(one.times, other.times)
    return Interval(ratio, *(ratio * end / times.median for end in (times.low, times.high)))


def _crowd(sample: Sample, threads: int) -> str:
    """Why so many threads may not decide; empty where every one of them has a core."""
    if threads == 1 or sample.ranks * threads <= sample.cores:
        return ""
    return f"{threads} threads of each of {sample.ranks} ranks are more than {sample.cores} cores"


def _labelled(entries: Sequence[Entry], labels: Mapping[str, str]) -> list[Entry]:
    """The timed rows with right data that have these labels."""
    return [
        entry
        for entry in entries
        if all(entry.label(name) == text for name, text in labels.items())
        and entry.times
        and entry.values.get("verified") is not False
    ]


def _by_size(entries: Sequence[Entry], name: str) -> dict[float, Entry]:
    """Of several of a size the last."""
    found = {size: entry for entry in entries if (size := entry.number(name)) is not None}
    return dict(sorted(found.items()))


# Broadcasts: a tree against the linear broadcast.

LEAST = 4  # ranks: on fewer, a tree is nothing but the linear broadcast
NEAR = 0.1  # sizes that differ by so little are taken for the same
#: A tree, and what it is to overtake.
TREES = (("rma-binomial", "rma-linear"), ("passive", "one-sided"))
#: On so many ranks and nodes, the time of the tree over that of the linear broadcast, by size.
Runs: TypeAlias = Sequence[tuple[Sample, Mapping[float, Interval]]]
OVER_LINEAR = "time over the linear one's"


def _trees(decide: Callable[[str, Runs], Finding]) -> Rule:
    """A rule that is asked of every tree and order of its children by itself."""

    def look(samples: Samples) -> list[Finding]:
        usable = [sample for sample in samples.found if sample.ranks >= LEAST]
        if not usable:
            return [samples.untested(f"on fewer than {LEAST} ranks a tree is the linear broadcast")]
        return [decide(variant, runs) for variant, runs in _races(usable).items()]

    return Rule("bench broadcast", look, "no tree and linear broadcast were measured together")


def _races(samples: Sequence[Sample]) -> dict[str, list[tuple[Sample, dict[float, Interval]]]]:
    found: dict[str, list[tuple[Sample, dict[float, Interval]]]] = {}
    for tree, linear in TREES:
        for sample in samples:
            theirs = _by_size(of_method(sample.entries, linear), "bytes")
            by_order: dict[str, list[Entry]] = {}
            for entry in of_method(sample.entries, tree):
                by_order.setdefault(f"{tree} {entry.label('order')}", []).append(entry)
            for variant, entries in by_order.items():
                mine = _by_size(entries, "bytes")
                ratios = {
                    size: ratio
                    for size in mine
                    if size in theirs and (ratio := mine[size].beside(theirs[size])) is not None
                }
                if ratios:
                    found.setdefault(variant, []).append((sample, ratios))
    return found


def _overtakes(variant: str, runs: Runs) -> Finding:
    sample, ratios = runs[-1]
    words = f"{sample}: {OVER_LINEAR} {told(ratios)}"
    return Finding(below(1.0)(ratios[max(ratios)]), words, variant)


def _smallest_linear(variant: str, runs: Runs) -> Finding:
    sample, ratios = runs[-1]
    smallest = ratios[min(ratios)]
    words = f"{sample}: {smallest} of the linear one's time at {byte_count(round(min(ratios)))}"
    return Finding(above(1.0)(smallest), words, variant)


def _gain_grows(variant: str, runs: Runs) -> Finding:
    sample, ratios = runs[-1]
    size = max(ratios)
    by_ranks = {each.ranks: mine[size] for each, mine in runs if size in mine}
    if len(ratios) < 2 or len(by_ranks) < 2:
        return untested(f"{sample}: one size or one number of ranks only", variant)
    with_size = less(ratios[size], ratios[min(ratios)])
    with_ranks = less(by_ranks[max(by_ranks)], by_ranks[min(by_ranks)])
    on_ranks = ", ".join(f"{ratio} on {count} ranks" for count, ratio in by_ranks.items())
    words = f"{sample}: {OVER_LINEAR} {told(ratios)}; with {byte_count(round(size))} {on_ranks}"
    return Finding(Outcome.every((with_size, with_ranks)), words, variant)


def _slower_networks_gain(variant: str, runs: Runs) -> Finding:
    within_one = [run for run in runs if run[0].nodes == 1][-1:]
    between_some = [run for run in runs if run[0].nodes > 1][-1:]
    pair = [*within_one, *between_some]
    if len(pair) < 2:
        return untested("needs runs on one node and on several", variant)
    both = pair[0][1].keys() & pair[1][1].keys()
    if not both:
        return untested("no size was measured on one node and on several", variant)
    one, other = (ratios[max(both)] for _, ratios in pair)
    by_node = ", ".join(f"{ratios[max(both)]} of the linear one's time, {s}" for s, ratios in pair)
    return Finding(less(other, one), f"with {byte_count(round(max(both)))} {by_node}", variant)


#: From some size on the tree is faster, on most ranks: with the largest it must be.
OVERTAKES = _trees(_overtakes)
#: The smallest messages are faster by the linear broadcast.
SMALLEST_LINEAR = _trees(_smallest_linear)
#: The larger the message, and the more ranks, the better the tree is beside the other.
GAIN_GROWS = _trees(_gain_grows)
#: The tree gains more between nodes than within one.
SLOWER_NETWORKS_GAIN = _trees(_slower_networks_gain)


def crosses_by(size: int, ranks: int) -> Rule:
    """Local. With messages of ``size`` bytes the tree is faster on ``ranks`` ranks and more."""

    def decide(variant: str, runs: Runs) -> Finding:
        found = {
            sample.ranks: (sample, ratio)
            for sample, ratios in runs
            for each, ratio in ratios.items()
            if abs(each / size - 1) <= NEAR
        }
        if not found:
            return untested(f"{byte_count(size)} was not measured", variant)
        by_ranks = ", ".join(f"{ratio} ({sample})" for sample, ratio in found.values())
        words = f"with {byte_count(size)}, {OVER_LINEAR} {by_ranks}"
        enough = [ratio for count, (_, ratio) in found.items() if count >= ranks]
        if not enough:
            return untested(f"on {max(found)} ranks at most; {words}", variant)
        return Finding(Outcome.every(map(below(1.0), enough)), words, variant)

    return _trees(decide)


# Partitioned sends: bandwidths over sizes, threads and orders.

FIRST = "left-to-right"
UNGROUPED = ("", "-")  # the label of a contestant that gathers no partitions


def _sends(
    sample: Sample, method: str, order: str = FIRST, threads: int = 1, *, grouped: bool = False
) -> dict[float, Entry]:
    """The rows of a mechanism marked one by one, by bytes of a partition."""
    labels = {"method": method, "order": order, "threads": str(threads), "marked": "one by one"}
    mine = [e for e in _labelled(sample.entries, labels) if rate(e)
            and (e.label("aggregate") not in UNGROUPED) == grouped]  # fmt: skip
    return _by_size(mine, PART)


def _over(
    mine: Mapping[float, Entry], theirs: Mapping[float, Entry], *, together: bool = False
) -> dict[float, Interval]:
    """By size, bandwidth over that of rows of as many bytes; ``together``: in the same rounds."""
    found = {}
    for size in mine:
        if size in theirs:
            compare = theirs[size].beside if together else theirs[size].against
            found[size] = compare(mine[size])
    return {size: ratio for size, ratio in found.items() if ratio is not None}


def _partitioned(look: Callable[[Sample], Iterator[Finding]], missing: str) -> Rule:
    return Rule("bench partitioned", lambda samples: look(samples.most), missing)


def keeps(
    methods: Sequence[str], size: float, share: float, *, keep: bool = True, grouped: bool = False,
    orders: Sequence[str] = (FIRST,),
) -> Rule:
    """Local. A share of the bandwidth of the largest partition, down to ``size`` bytes.

    ``keep`` false: less of it, at the largest measured partition of at most ``size`` bytes.
    """  # fmt: skip

    def look(sample: Sample) -> Iterator[Finding]:
        for method in methods:
            for order in orders:
                rows = _sends(sample, method, order, grouped=grouped)
                if len(rows) > 1:
                    yield of_rows(f"{method}, {order}", rows)

    def of_rows(variant: str, rows: Mapping[float, Entry]) -> Finding:
        whole = max(rows)
        fits = operator.ge if keep else operator.le
        others = {each: rows[each] for each in rows if each < whole and fits(each, size)}
        if not others:
            words = "at least" if keep else "at most"
            why = f"no partition of {words} {byte_count(round(size))} beside the largest"
            return untested(why, variant)
        parts = _over(others, dict.fromkeys(others, rows[whole]))
        words = f"bandwidth over that of {byte_count(round(whole))}:"
        if keep:
            return decided(variant, parts, at_least(share), words)
        return Finding(below(share)(parts[max(parts)]), f"{words} {told(parts)}", variant)

    return _partitioned(look, f"{', '.join(methods)}: not measured over the sizes")


def loses(methods: Sequence[str], order: str, other: str, share: float) -> Rule:
    """Local. With some size, an order has less than a share of the bandwidth of another one, where
    partitions are gathered."""

    def look(sample: Sample) -> Iterator[Finding]:
        for method in methods:
            mine, theirs = (_sends(sample, method, o, grouped=True) for o in (order, other))
            parts = _over(mine, theirs)
            if parts:
                words = f"bandwidth {order} over {other} {told(parts)}"
                kept = Outcome.every(map(at_least(share), parts.values()))
                yield Finding(kept.opposite, words, method)

    return _partitioned(look, f"{', '.join(methods)}: not measured in both orders")


def together(one: str, other: str, share: float, *, smallest: bool = False) -> Rule:
    """Local. Two mechanisms have the same bandwidth, to ``share``, at all sizes or the smallest."""

    def look(sample: Sample) -> Iterator[Finding]:
        parts = _over(_sends(sample, one), _sends(sample, other), together=True)
        chosen = dict(list(parts.items())[: 1 if smallest else None])
        if chosen:
            words = f"bandwidth of {one} over that of {other}"
            yield decided(f"{one}, {other}", chosen, between(share, 1 / share), words)

    return _partitioned(look, f"{one}, {other}: not both measured")


def threaded(method: str, threads: int, test: Test) -> Rule:
    """Local. The bandwidth of so many threads over that of one, with the largest partitions that so
    many can share."""

    def look(sample: Sample) -> Iterator[Finding]:
        crowd = _crowd(sample, threads)
        parts = _over(_sends(sample, method, threads=threads), _sends(sample, method))
        if crowd:
            yield untested(crowd, method)
        elif parts:
            size = max(parts)
            words = (
                f"bandwidth of {threads} threads over that of 1, with partitions of "
                f"{byte_count(round(size))}: {parts[size]}"
            )
            yield Finding(test(parts[size]), words, method)

    return _partitioned(look, f"{method}: not measured with {threads} threads")


def order_matters(method: str, orders: Sequence[str], share: float) -> Rule:
    """Local. The order of the marks changes the bandwidth by a share at most."""

    def look(sample: Sample) -> Iterator[Finding]:
        rows = {order: found for order in orders if (found := _sends(sample, method, order))}
        parts = {order: _over(rows[order], rows[first])
                 for first in list(rows)[:1] for order in list(rows)[1:]}  # fmt: skip
        every = [part for each in parts.values() for part in each.values()]
        if every:
            alike = between(1.0 - share, 1.0 / (1.0 - share))
            words = "; ".join(
                f"bandwidth {order} over {next(iter(rows))} {told(each)}"
                for order, each in parts.items()
            )
            yield Finding(Outcome.every(map(alike, every)), words, method)

    return _partitioned(look, f"{method}: no size was measured in two orders or more")
