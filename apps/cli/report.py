"""What a command says at its end: a table for a person, a JSON file for a program."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from mpi4py import MPI
from rich.console import Console, RenderableType
from rich.table import Table

from onesided.apps.cli.failures import CommandError, words
from onesided.apps.cli.machine import facts, library, versions
from onesided.apps.cli.progress import PLAIN_WIDTH
from onesided.collectives.hardware import Layout

# What is said about a list of times: median, spread, ratio, break-even count.


def quartiles(times: Sequence[float]) -> tuple[float, float, float]:
    """Local. First quartile, median, third quartile of at least one time."""
    if len(times) == 1:
        return times[0], times[0], times[0]
    first, middle, third = quantiles(times, n=4, method="inclusive")
    return first, middle, third


def ratio(times: Sequence[float], baseline: Sequence[float]) -> float:
    """Local. Median over k of time k divided by the baseline's time k, taken in the same round."""
    if len(times) != len(baseline):
        raise ValueError(f"{len(times)} times cannot be paired with {len(baseline)}")
    return median(one / other for one, other in zip(times, baseline, strict=True))


def break_even(setup: float, baseline: float, persistent: float) -> int | None:
    """Local. The number of iterations after which a set-up has paid; None: never.

    N = ceil(T_init / (T_MPI - T_persistent)): ``setup`` is what initializing and freeing cost,
    ``baseline`` and ``persistent`` one iteration without and with it, all in seconds.
    """
    gain = baseline - persistent
    if not gain > 0:
        return None
    return math.ceil(setup / gain)


# How a verification ended.


@dataclass(frozen=True)
class Verdict:
    """A relative error, and the largest one that rounding explains."""

    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Local. An error that is not a number is no pass."""
        return self.error <= self.tolerance

    def __str__(self) -> str:
        return f"{self.error:.1e} {'ok' if self.passed else 'WRONG'}"


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Local. A wrong one where there is one; among these the largest error for its tolerance."""
    return max(verdicts, key=lambda each: (not each.passed, each.error / (each.tolerance or 1.0)))


def conclusion(verdicts: Iterable[Verdict], against: str) -> str:
    """Local. A sentence about all verdicts of a command."""
    every = list(verdicts)
    word = "Verified" if all(each.passed for each in every) else "WRONG, compared"
    allowed = max((each.tolerance for each in every), default=0.0)
    return f"{word} with {against}; relative errors up to {allowed:.1e} are rounding."


SCHEMA = 1  # of the JSON files; another number where a program must read them otherwise
NEVER = "never"
NOTHING = "-"
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def duration(seconds: float) -> str:
    """Local. Three digits and a unit."""
    factor, unit = next((each for each in UNITS if seconds >= each[0]), UNITS[-1])
    scaled = seconds / factor
    digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
    return f"{scaled:.{digits}f} {unit}"


def byte_count(number: int) -> str:
    """Local. A number of bytes in the largest unit that divides it well enough."""
    for factor, unit in BYTES:
        if number >= factor:
            return f"{number / factor:.4g} {unit}"
    return f"{number} B"


@dataclass
class Row:
    """One line of a report: what was timed, or why it was not.

    ``labels`` name it, ``times`` are seconds per iteration, ``setup`` the seconds of initializing
    and freeing, ``nbytes`` what one iteration moves. ``against``: times of the same rounds to
    compare with, by name; break-even counts refer to ``mpi``. ``details``: parts of an iteration.
    ``values``: other numbers, by name; None where there is none. ``verdict``: of a verification,
    if there was one.
    """

    labels: Mapping[str, str]
    times: Sequence[float] = ()
    setup: float | None = None
    nbytes: int = 0
    against: Mapping[str, Sequence[float]] = field(default_factory=dict)
    details: Mapping[str, Sequence[float]] = field(default_factory=dict)
    values: Mapping[str, float | None] = field(default_factory=dict)
    verdict: Verdict | None = None
    reason: str = ""

    @property
    def ratios(self) -> dict[str, float]:
        """Local. Medians of the ratios to what the row is compared with."""
        return {name: ratio(self.times, times) for name, times in self.against.items()}

    @property
    def break_even(self) -> int | str | None:
        """Local. Iterations after which the set-up has paid, or "never"; None: nothing to tell."""
        if self.setup is None or self.against.get("mpi", self.times) is self.times:
            return None
        count = break_even(self.setup, median(self.against["mpi"]), median(self.times))
        return NEVER if count is None else count

    def record(self) -> dict[str, Any]:
        """Local. For JSON; times in seconds. ``labels`` has them once more, as they are shown."""
        if self.reason:
            return {**self.labels, "labels": dict(self.labels), "reason": self.reason}
        first, middle, third = quartiles(self.times)
        checked = (
            {}
            if self.verdict is None
            else {
                "error": self.verdict.error,
                "verified": self.verdict.passed,
            }
        )
        return {
            **self.labels,
            "labels": dict(self.labels),
            **checked,
            **self.values,
            "setup_s": self.setup,
            "iterations": len(self.times),
            "median_s": middle,
            "quartile_1_s": first,
            "quartile_3_s": third,
            "bytes": self.nbytes,
            "gigabytes_per_s": self.nbytes / middle / 1e9,
            "ratios": self.ratios,
            "break_even": self.break_even,
            "parts": {name: median(times) for name, times in self.details.items()},
            "times_s": list(self.times),
        }

    def cells(self) -> dict[str, str]:
        """Local. For the table."""
        if self.reason:
            return dict(self.labels)
        first, middle, third = quartiles(self.times)
        shown = dict(self.labels)
        if self.setup is not None:
            shown["set-up"] = duration(self.setup)
        shown |= {name: duration(median(times)) for name, times in self.details.items()}
        shown["median"] = duration(middle)
        shown["quartiles"] = f"{duration(first)} to {duration(third)}"
        if self.nbytes:
            shown["GB/s"] = f"{self.nbytes / middle / 1e9:.2f}"
        shown |= {f"vs {name}": f"{value:.2f}" for name, value in self.ratios.items()}
        if self.break_even is not None:
            shown["break-even"] = str(self.break_even)
        if self.verdict is not None:
            shown["error"] = str(self.verdict)
        for name, number in self.values.items():
            shown[name] = NOTHING if number is None else f"{number:.2f}"
        return shown


@dataclass
class Listing:
    """A table of numbers: a title, columns with the format of their numbers, and rows.

    A None among the numbers is an empty place.
    """

    title: str
    columns: Mapping[str, str]
    rows: list[Sequence[float | None]] = field(default_factory=list)

    def records(self) -> list[dict[str, float | None]]:
        """Local. For JSON."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def table(self) -> Table:
        """Local. For a person."""
        table = Table(title=self.title, title_justify="left")
        for name in self.columns:
            table.add_column(name, justify="right", no_wrap=True)
        for row in self.rows:
            pairs = zip(row, self.columns.values(), strict=True)
            table.add_row(*(NOTHING if x is None else format(x, how) for x, how in pairs))
        return table


@dataclass
class Report:
    """Everything that a command found out. Rows and remarks are rank 0's; others keep their own.

    ``pattern`` says what was exchanged, ``settings`` what the command was given, ``remarks`` are
    sentences below the table. ``listings`` come before it; ``verdicts`` are those of the whole
    command, by what was verified.
    """

    command: str
    settings: Mapping[str, Any]
    pattern: Mapping[str, Any]
    rows: list[Row] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    listings: dict[str, Listing] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    @property
    def verified(self) -> bool | None:
        """Local. Whether all verdicts are good; None where nothing was verified."""
        verdicts = [row.verdict for row in self.rows if row.verdict is not None]
        verdicts += self.verdicts.values()
        return all(verdict.passed for verdict in verdicts) if verdicts else None

    def table(self, title: str) -> RenderableType:
        """Local. The rows for a person."""
        return _table(title, self.rows)

    def machine(self, comm: MPI.Intracomm) -> Mapping[str, object]:
        """Collective. Where it was measured."""
        return facts(comm)

    def finish(self, comm: MPI.Intracomm, out: Console | None, path: str | None) -> None:
        """Collective. Print the table on rank 0, and write the JSON file where one is wanted."""
        machine = self.machine(comm)
        layout = Layout.of(comm)
        if comm.rank != 0 or out is None:
            return
        title = f"onesided {self.command}: {library()}, {layout}"
        wide: dict[str, Any] = {"width": max(out.width, PLAIN_WIDTH), "crop": False}
        for listing in self.listings.values():
            out.print(listing.table(), **wide)
        out.print(self.table(title), **wide)
        for row in self.rows:
            if row.reason:
                out.print(f"{' '.join(row.labels.values())}: {row.reason}", **PLAIN)
        for what, verdict in self.verdicts.items():
            out.print(f"{what}: {verdict} (at most {verdict.tolerance:.1e})", **PLAIN)
        for remark in self.remarks:
            out.print(remark, **PLAIN)
        if path is not None:
            content = {
                "command": self.command,
                "settings": dict(self.settings),
                "pattern": dict(self.pattern),
                "versions": versions(),
                "machine": dict(machine),
                "verified": self.verified,
                "verdicts": {
                    what: {
                        "error": each.error,
                        "tolerance": each.tolerance,
                        "verified": each.passed,
                    }
                    for what, each in self.verdicts.items()
                },
                "remarks": self.remarks,
                **{name: each.records() for name, each in self.listings.items()},
                "rows": [row.record() for row in self.rows],
            }
            write_json(path, content)


PLAIN: dict[str, Any] = {"markup": False, "highlight": False, "soft_wrap": True}


def write_json(path: str, content: Mapping[str, Any]) -> None:
    """Local. Write a JSON file, with the version of what commands write."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"schema": SCHEMA, **content}, file, indent=1)
        file.write("\n")


def check_json(comm: MPI.Intracomm, options: Namespace) -> None:
    """Collective. :class:`CommandError` before the work where ``--json`` cannot be written."""
    trouble = ""
    if comm.rank == 0 and options.json is not None:
        try:
            with open(options.json, "a", encoding="utf-8"):
                pass
        except OSError as error:
            trouble = words(error)
    trouble = comm.bcast(trouble)
    if trouble:
        raise CommandError(trouble)


def _table(title: str, rows: Sequence[Row]) -> Table:
    columns: dict[str, bool] = {}
    for row in rows:
        columns |= {name: name in row.labels for name in row.cells()}
    table = Table(title=title, title_justify="left")
    for name, is_label in columns.items():
        table.add_column(name, justify="left" if is_label else "right", no_wrap=True)
    for row in rows:
        cells = row.cells()
        table.add_row(*(cells.get(name, NOTHING) for name in columns))
    return table
