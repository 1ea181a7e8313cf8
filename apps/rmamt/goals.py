"""What one thread has to reach beside the same loop in C, and what a thread of its own costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onesided.apps.report import byte_count
from onesided.apps.rmamt.cell import SINGLE, Cell, Outcome
from onesided.apps.rmamt.rows import shares

BANDWIDTH = 0.95  # of that of C, at least, at messages of :data:`LARGE` bytes
LARGE = 1 << 20
RATE = 0.9  # of that of a bare loop, at least, of a thread that is woken for many messages


def goals(outcomes: Mapping[Cell, Outcome]) -> list[str]:
    """Local. A sentence for each goal that there are data for."""
    good = {cell: each for cell, each in outcomes.items() if not each.kind}
    return [words for goal in (_bandwidth, _rate, _protocol) if (words := goal(good))]


def _bandwidth(outcomes: Mapping[Cell, Outcome]) -> str:
    """Put on the main thread, messages of 1 MiB: the part of C's bandwidth."""

    def takes(cell: Cell) -> bool:
        alone = cell.level == SINGLE and cell.op == "put"
        return alone and cell.pattern == "bandwidth" and cell.size == LARGE

    found = _ratios(outcomes, takes, "alone_over_c", over=True)
    if not found:
        return ""
    return (
        f"Bandwidth of Put at {byte_count(LARGE)}, one thread, over that of the same loop in C (at "
        f"least {BANDWIDTH}): {_told(found)}."
    )


def _protocol(outcomes: Mapping[Cell, Outcome]) -> str:
    """Put by one thread that waits for broadcasts: the part of the rate of mpi4py's bare calls."""
    smallest = min((cell.size for cell in outcomes), default=0)

    def takes(cell: Cell) -> bool:
        one = cell.threads == 1 and cell.op == "put"
        return one and cell.pattern == "rate-pairs" and cell.size == smallest

    found = _ratios(outcomes, takes, "over_alone", over=True)
    if not found:
        return ""
    return (
        f"Message rate of Put at {byte_count(smallest)}, one thread that the main thread wakes, "
        f"over that of a bare loop of mpi4py's calls on the main thread (at least {RATE}): "
        f"{_told(found)}."
    )


def _rate(outcomes: Mapping[Cell, Outcome]) -> str:
    """Put on the main thread, the smallest messages: how many times C's rate is."""
    smallest = min((cell.size for cell in outcomes), default=0)

    def takes(cell: Cell) -> bool:
        alone = cell.level == SINGLE and cell.op == "put"
        return alone and cell.pattern == "rate-pairs" and cell.size == smallest

    found = _ratios(outcomes, takes, "alone_over_c", over=False)
    if not found:
        return ""
    return (
        f"Message rate of Put at {byte_count(smallest)}, one thread: C's is so many times that of "
        f"mpi4py: {_told(found)}."
    )


def _ratios(
    outcomes: Mapping[Cell, Outcome], takes: Callable[[Cell], bool], name: str, *, over: bool
) -> dict[str, float]:
    """By synchronization, of the cells that are taken; ``over``: one over the number."""
    found = {}
    for cell, each in outcomes.items():
        ratio = shares(each).get(name) if takes(cell) else None
        if ratio:
            found[cell.sync] = 1.0 / ratio if over else ratio
    return found


def _told(found: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {ratio:.2f}" for name, ratio in found.items())
