"""What the benchmark says: a row for every cell, and for a person tables over the sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, stdev
from typing import Any

from mpi4py import MPI
from rich.console import Group
from rich.table import Table

from onesided.apps.cli.machine import library
from onesided.apps.cli.report import NOTHING, Report, Row, byte_count, duration, tables_over_bytes
from onesided.apps.cli.statistics import Verdict
from onesided.apps.papers.rmamt_cell import ALONE, MAIN, RELEASED, THREADS, C, Cell, Outcome
from onesided.apps.report.threads import BANDWIDTH, LATENCY

NAMES = ("sync", "op", "threads", "level")
SHOWN = "the number of its pattern"
COLUMNS = 8  # sizes in a table
SMALL = 64 * 1024  # bytes from which on paper 002 calls messages large


def row(cell: Cell, found: Outcome) -> Row:
    """Local. Of a cell; where it failed, the kind of failure and what is known of it."""
    facts = {"message_bytes": cell.size}
    if found.kind:
        return Row(cell.labels, reason=f"{found.kind}: {found.reason}", facts=facts)
    means = [run.mean for run in found.loops[THREADS]]
    mean, spread = fmean(means), stdev(means) if len(means) > 1 else None
    values: dict[str, float | None] = {
        "messages": found.messages,
        "rounds": found.rounds,
        "latency_s": mean / found.ways,
        "latency_spread_s": None if spread is None else spread / found.ways,
        "messages_per_s": found.messages / mean,
        "mean_gigabytes_per_s": found.nbytes / mean / 1e9,
        "relative_spread": None if spread is None else spread / mean,
        **shares(found),
    }
    made = Row(cell.labels, means, nbytes=found.nbytes, values=values, facts=facts)
    made.verdict = Verdict(found.wrong / max(1, found.messages), 0.0)
    made.shown = {SHOWN: shown(cell, values)}
    return made


def shares(found: Outcome) -> dict[str, float | None]:
    """Local. What threads and Python cost, by medians of the same rounds.

    ``python_share``: the part of the time that goes where every thread makes its calls in C,
    outside of Python's lock. ``calls_share``: the part that Python's calls take by themselves, by
    the main thread alone in Python and in C. ``lock_share``: the rest, which threads lose to each
    other for the lock. ``over_alone``: the time over that of the main thread alone, which makes
    the same calls. ``alone_over_c``: how much slower than in C that thread is.
    """
    times = {
        name: median(run.median for run in runs) for name, runs in found.loops.items() if runs
    }
    mine = times[THREADS]
    alone = times.get(ALONE, mine)
    released, compiled = times.get(RELEASED), times.get(C)
    python = None if released is None else 1.0 - released / mine
    calls = None if compiled is None else (alone - compiled) / mine
    return {
        "python_share": calls if ALONE not in times else python,
        "calls_share": calls,
        "lock_share": None if python is None or calls is None else python - calls,
        "over_alone": mine / alone if ALONE in times else None,
        "alone_over_c": None if compiled is None else alone / compiled,
        "median_round_s": mine,
        "alone_s": times.get(ALONE),
        "released_s": released,
        "c_s": compiled,
    }


def shown(cell: Cell, values: Mapping[str, float | None]) -> str:
    """Local. The number that a pattern is about, with its spread."""
    spread = values["relative_spread"]
    if cell.pattern == LATENCY:
        told = duration(values["latency_s"] or 0.0)
    elif cell.pattern == BANDWIDTH:
        told = f"{values['mean_gigabytes_per_s']:.3g}"
    else:
        told = f"{(values['messages_per_s'] or 0.0) / 1e6:.3g}"
    return told if spread is None else f"{told} ±{100 * spread:.0f}%"


UNITS = {LATENCY: "time", BANDWIDTH: "GB/s"}


@dataclass
class MatrixReport(Report):
    """A report with a table for every pattern, a column for every size of messages.

    ``place``: facts of the machine as the jobs found it.
    """

    place: Mapping[str, object] = field(default_factory=dict)

    def machine(self, comm: MPI.Intracomm) -> Mapping[str, object]:
        """Collective. Where the jobs ran, if there was any."""
        return self.place or super().machine(comm)

    def table(self, title: str) -> Group:
        """Local. For a person."""
        title = f"onesided {self.command}: {library()}, jobs of {self.pattern['ranks']} ranks"
        measured = [each for each in self.rows if not each.reason]
        parts: list[str | Table] = [title]

        def over_bytes(
            title: str, rows: Sequence[Row], cell: Callable[[Row], str]
        ) -> Iterator[Table]:
            return tables_over_bytes(title, rows, NAMES, "message_bytes", cell, COLUMNS)

        for pattern in dict.fromkeys(each.labels["pattern"] for each in measured):
            here = [each for each in measured if each.labels["pattern"] == pattern]
            unit = UNITS.get(pattern, "million messages/s")
            parts += over_bytes(f"{pattern}: {unit}", here, lambda each: each.shown[SHOWN])
            if any(each.values["lock_share"] is not None for each in here):
                words = f"{pattern}: per cent for Python, of these its lock"
                threaded = [each for each in here if each.labels["threads"] != MAIN]
                parts += over_bytes(words, threaded, _share)
        return Group(*parts)


def _share(each: Row) -> str:
    python, lock = each.values["python_share"], each.values["lock_share"]
    if python is None or lock is None:
        return NOTHING
    return f"{100 * python:.0f}, {100 * lock:.0f}"


def failures(rows: Mapping[Cell, Row]) -> dict[str, Any]:
    """Local. For JSON: how many cells failed, by their kinds and by what they have in common."""
    failed = {cell: each for cell, each in rows.items() if each.reason}
    return {
        "cells": len(rows),
        "failed": len(failed),
        "by_kind": dict(Counter(each.reason.partition(":")[0] for each in failed.values())),
        "by_op": dict(Counter(cell.op for cell in failed)),
        "by_sync": dict(Counter(cell.sync for cell in failed)),
        "by_threads": dict(Counter(str(cell.threads or MAIN) for cell in failed)),
        "by_bytes": dict(Counter(byte_count(cell.size) for cell in failed)),
    }


def failures_remark(rows: Mapping[Cell, Row]) -> str:
    """Local. A sentence on them, with the parts that paper 002 gives."""
    found = failures(rows)
    if not found["failed"]:
        return f"No failure in {found['cells']} cells: no crash, error, hang, nor wrong data."
    failed = [cell for cell, each in rows.items() if each.reason]
    kinds = ", ".join(f"{kind} {count}" for kind, count in found["by_kind"].items())
    parts = {
        "of Get": sum(cell.op == "get" for cell in failed),
        "of one thread": sum(cell.threads <= 1 for cell in failed),
        "of messages below 64 KiB": sum(cell.size < SMALL for cell in failed),
    }
    told = ", ".join(f"{100 * count / len(failed):.0f}% {what}" for what, count in parts.items())
    return f"{len(failed)} of {found['cells']} cells FAILED: {kinds}; {told}."
