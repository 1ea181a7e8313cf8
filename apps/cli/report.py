"""What a command says at its end: a table for a person, columns for a program, a JSON file."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any, Self

from mpi4py import MPI
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from onesided.apps.cli.failures import by_rank_0
from onesided.apps.cli.files import replace_file
from onesided.apps.cli.machine import Layout, circumstances, facts, library, versions
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console
from onesided.apps.cli.statistics import (
    Interval,
    Verdict,
    break_even,
    conclusion,
    paired,
    quartiles,
)  # fmt: skip

SCHEMA = 2  # of the JSON files; another number where a program must read them otherwise
NEVER = "never"
BASELINE = "mpi"  # the method that every other is compared with: the MPI's own call
METHOD = "method"
NOTHING = "-"
MOST_TIMES = 200  # of a row that are written to JSON
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))

# -- numbers --------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """Local. Three digits and a unit."""
    rounded = 1.0005 * seconds  # 999.9 ms are 1.00 s
    factor, unit = next((each for each in UNITS if rounded >= each[0]), UNITS[-1])
    scaled = seconds / factor
    digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
    return f"{scaled:.{digits}f} {unit}"


def byte_count(number: float) -> str:
    """Local. A number of bytes in the largest unit that divides it well enough."""
    for factor, unit in BYTES:
        if number >= factor:
            return f"{number / factor:.4g} {unit}"
    return f"{number:.0f} B"


def number(value: float) -> str:
    """Local. A number that has no unit, in four digits."""
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.4g}"


def shown(name: str, value: Any) -> str:
    """Local. A metric for a person; the end of its name tells its unit."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        seconds = name.endswith("_s") and not name.endswith("_per_s")
        kind = duration if seconds else byte_count if name.endswith("bytes") else number
        return kind(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {shown(str(key), each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(shown(name, each) for each in value)
    return str(value)


# -- rows -----------------------------------------------------------------------------------------


@dataclass
class Row:
    """What was timed, or why it was not.

    ``labels`` name it, ``times`` are seconds per iteration on the slowest rank, ``ranks`` medians
    of those of the fastest rank and of the mean over the ranks, ``setup`` the seconds of
    initializing and freeing, ``nbytes`` what one iteration moves. ``against``: times of the same
    rounds to compare with, by name; break-even counts refer to ``mpi``. ``parts``: seconds of
    parts of an iteration. ``metrics``: other facts, whose names end in their units. ``verdict``:
    of a verification, if there was one. ``used``: the method that ``auto`` chose. ``case``: the
    same for all that took turns.
    """

    labels: Mapping[str, str]
    times: Sequence[float] = ()
    setup: float | None = None
    nbytes: int = 0
    against: Mapping[str, Sequence[float]] = field(default_factory=dict)
    parts: Mapping[str, Sequence[float]] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    verdict: Verdict | None = None
    reason: str = ""
    used: str = ""
    ranks: Sequence[float] = ()
    case: str = ""

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Self:
        """Of its fields, as ``asdict`` tells them; KeyError or TypeError for anything else."""
        verdict = kept["verdict"]
        return cls(**{**kept, "verdict": verdict and Verdict(**verdict)})

    @property
    def method(self) -> str:
        return self.labels.get(METHOD, "")

    @property
    def intervals(self) -> dict[str, Interval]:
        """Of the ratios to what the row is compared with."""
        return {name: Interval.of(paired(self.times, of)) for name, of in self.against.items()}

    @property
    def break_even(self) -> int | str | None:
        """Iterations after which the set-up has paid, or "never"; None: nothing to tell."""
        if self.setup is None or BASELINE not in self.against or self.method == BASELINE:
            return None
        count = break_even(self.setup, median(self.against[BASELINE]), median(self.times))
        return NEVER if count is None else count

    def record(self) -> dict[str, Any]:
        """For JSON; times in seconds."""
        found: dict[str, Any] = {"labels": dict(self.labels)}
        if self.reason:
            return found | {"reason": self.reason}
        first, middle, third = quartiles(self.times)
        if self.verdict is not None:
            found |= {"error": self.verdict.error, "verified": self.verdict.passed}
        if self.used:
            found["used"] = self.used
        if self.case:
            found["case"] = self.case
        if self.ranks:
            found |= {"fastest_rank_s": self.ranks[0], "mean_rank_s": self.ranks[1]}
        intervals = self.intervals
        step = -(-len(self.times) // MOST_TIMES)
        return found | {
            "setup_s": self.setup, "iterations": len(self.times), "median_s": middle,
            "mean_s": fmean(self.times), "quartile_1_s": first, "quartile_3_s": third,
            "bytes": self.nbytes, "gigabytes_per_s": self.nbytes / middle / 1e9,
            "ratios": {name: each.median for name, each in intervals.items()},
            "intervals": {
                name: [each.low, each.high] for name, each in intervals.items() if each.known
            },
            "break_even": self.break_even,
            "parts": {name: median(times) for name, times in self.parts.items()},
            "metrics": self.metrics,
            "times_s": list(self.times[::step]), "times_step": step,
        }  # fmt: skip


def cells_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Local. Of a record of a row, for the tables of a person."""
    found = {str(name): str(text) for name, text in record.get("labels", {}).items()}
    if "reason" in record:
        return found | {"not measured": record["reason"]}
    if "used" in record:
        found[METHOD] = f"{found.get(METHOD, '')} ({record['used']})"
    if record.get("setup_s") is not None:
        found["set-up"] = duration(record["setup_s"])
    found |= {name: shown("_s", seconds) for name, seconds in record.get("parts", {}).items()}
    middle = record.get("median_s", 0.0)
    spread = record.get("quartile_3_s", middle) - record.get("quartile_1_s", middle)
    found |= {"median": duration(middle), "±": f"{50 * spread / (middle or 1):.0f}%"}
    if record.get("bytes"):
        found["GB/s"] = f"{record['gigabytes_per_s']:.2f}"
    ratios = {name: each for name, each in record.get("ratios", {}).items() if each is not None}
    found |= {f"vs {name}": f"{each:.2f}" for name, each in ratios.items()}
    if record.get("break_even") is not None:
        found["break-even"] = str(record["break_even"])
    if record.get("verified") is False:
        found["error"] = f"{shown('error', record['error'])} WRONG"
    metrics = single(record.get("metrics", {}))
    return found | {without_unit(name): shown(name, each) for name, each in metrics.items()}


def single(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Local. Those that are one number or word."""
    return {
        name: each for name, each in metrics.items()
        if not isinstance(each, Mapping | list | tuple)
    }  # fmt: skip


def without_unit(name: str) -> str:
    """Local. Of a metric, for a person."""
    return re.sub(r"(?<!_per)_(s|bytes)\Z", "", name).replace("_", " ")


@dataclass
class Listing:
    """A table of numbers: a title, columns with the format of their numbers, and rows.

    A None among the numbers is an empty place.
    """

    title: str
    columns: Mapping[str, str]
    rows: list[Sequence[float | None]] = field(default_factory=list)

    def records(self) -> list[dict[str, float | None]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def table(self) -> Table:
        cells = [
            {name: NOTHING if x is None else format(x, self.columns[name])
             for name, x in record.items()}
            for record in self.records()
        ]  # fmt: skip
        return plain_table(self.title, list(self.columns), cells, ())


# -- tables ---------------------------------------------------------------------------------------

#: What a table does without where it is wider than the terminal, first to last; then its parts.
DISPENSABLE = ("GB/s", "±", "set-up")


def plain_table(
    title: str, columns: Sequence[str], rows: Sequence[Mapping[str, str]], left: Sequence[str]
) -> Table:
    """Local. These columns; those of numbers on the right."""
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False,
                  padding=(0, 1, 0, 0))  # fmt: skip
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(row.get(name, NOTHING)) for name in columns))
    return table


def common(rows: Sequence[Row]) -> dict[str, str]:
    """Local. The labels that all of several rows share."""
    if len(rows) < 2:
        return {}
    first, *rest = [row.labels for row in rows]
    return {k: v for k, v in first.items() if k != METHOD and all(r.get(k) == v for r in rest)}


def row_table(rows: Sequence[Row], width: int) -> tuple[Table, list[str]]:
    """Local. A line for every row, in a width, and the columns that had no room."""
    shared = common(rows)
    lines = [cells_of(row.record()) for row in rows]
    every = dict.fromkeys(name for line in lines for name in line)
    columns = [name for name in every if name not in shared]
    labels = list(dict.fromkeys(name for row in rows for name in row.labels))
    parts = list(dict.fromkeys(name for row in rows for name in row.parts))
    metrics = list(dict.fromkeys(without_unit(name) for row in rows for name in row.metrics))
    spare = [name for name in (*DISPENSABLE, *reversed(metrics), *parts) if name in columns]
    left_out: list[str] = []
    while True:
        table = plain_table(_told(shared), columns, lines, labels)
        if not spare or _fits(table, width):
            return table, left_out
        left_out.append(spare.pop(0))
        columns.remove(left_out[-1])


def across_table(
    rows: Sequence[Row], across: str, width: int, baseline: str = BASELINE
) -> Iterator[Table]:
    """Local. A line for everything but the label ``across``, whose texts are columns.

    A cell is the ratio to the baseline, or a time where there is none; there are several tables
    where one is too wide.
    """
    shared = common(rows)
    names = [n for n in dict.fromkeys(n for row in rows for n in row.labels)
             if n != across and n not in shared]  # fmt: skip
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        key = tuple(row.labels.get(name, NOTHING) for name in names)
        cell = lines.setdefault(key, dict(zip(names, key, strict=True)))
        cell[row.labels.get(across, NOTHING)] = ratio_cell(row, baseline)
    left = list(dict.fromkeys(row.labels.get(across, NOTHING) for row in rows))
    title = _told(shared)
    while left:
        for count in range(len(left), 0, -1):
            table = plain_table(title, [*names, *left[:count]], list(lines.values()), names)
            if _fits(table, width):
                break
        yield table
        title, left = "", left[count:]


def _told(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in labels.items())


def _fits(table: Table, width: int) -> bool:
    return Console(width=1000).measure(table).maximum <= width


def ratio_cell(row: Row, baseline: str = BASELINE) -> str:
    """Local. A ratio and half the distance of its quartiles; the time of what is compared with."""
    if (row.verdict is not None and not row.verdict.passed) or row.metrics.get("wrong partitions"):
        return "WRONG"
    if baseline not in row.against or row.method == baseline:
        return duration(median(row.times))
    first, middle, third = quartiles(paired(row.times, row.against[baseline]))
    digits = 2 if middle < 9.995 else 1 if middle < 99.95 else 0
    return f"{middle:.{digits}f}±{(third - first) / 2:.{digits}f}"


def print_wide(out: Console, table: Table) -> None:
    """Local. As wide as it is: a terminal breaks lines rather than to lose numbers."""
    Console(width=1000, force_terminal=out.is_terminal, file=out.file).print(table)


# -- the report -----------------------------------------------------------------------------------

PLAIN: dict[str, Any] = {"markup": False, "highlight": False, "soft_wrap": True}


@dataclass
class Report:
    """Everything that a command found out. Rows and remarks are rank 0's; others keep their own.

    ``pattern`` says what was exchanged, ``settings`` what the command was given, ``remarks`` are
    sentences below the table. ``listings`` come before it; ``verdicts`` are those of the whole
    command, by what was verified. ``across``: a label whose texts are columns of the table;
    ``by``: one that each has a table of its own; ``baseline``: what the ratios there are to.
    ``draw``: makes an image of what is written.
    """

    command: str
    settings: Mapping[str, Any]
    pattern: Mapping[str, Any]
    rows: list[Row] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    listings: dict[str, Listing] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    across: str = ""
    by: str = ""
    baseline: str = BASELINE
    kept: Path | None = None
    draw: Callable[[str, Mapping[str, Any]], object] = lambda path, content: None

    def _verdicts(self) -> list[Verdict]:
        of_rows = [row.verdict for row in self.rows if row.verdict is not None]
        return [*of_rows, *self.verdicts.values()]

    @property
    def verified(self) -> bool | None:
        """Whether all verdicts are good; None where nothing was verified."""
        verdicts = self._verdicts()
        return all(verdict.passed for verdict in verdicts) if verdicts else None

    def finish(self, comm: MPI.Intracomm, options: Options, *, interrupted: bool = False) -> None:
        """Collective. Print the table on rank 0, and write the JSON file where one is wanted.

        What was kept beside the file to go on with is needed no longer, unless ``interrupted``.
        :class:`CommandError` on every rank where it cannot be written.
        """
        place = {"machine": facts(comm), "circumstances": circumstances(comm)}
        title = f"onesided {self.command}: {library()}, {Layout.of(comm)}"

        def tell() -> None:
            content = self._content(place)
            if options.json is not None:  # first: what follows may fail, and the work is done
                write_json(options.json, content)
            if not interrupted and self.kept is not None:
                self.kept.unlink(missing_ok=True)
            if options.format == "table":
                self._show(console(), title)
            else:
                print_rows(self.rows, options.format)
                for what, verdict in self.verdicts.items():
                    if not verdict.passed:
                        print(f"{what}: {verdict}", file=sys.stderr, flush=True)
            if options.picture is not None:
                self.draw(options.picture, _whole(content))

        by_rank_0(comm, tell)

    def _show(self, out: Console, title: str) -> None:
        for listing in self.listings.values():
            print_wide(out, listing.table())
        out.print(title, **PLAIN)
        timed = [row for row in self.rows if not row.reason]
        groups: dict[str, list[Row]] = {}
        for row in timed:
            groups.setdefault(row.labels.get(self.by, ""), []).append(row)
        left_out: dict[str, None] = {}
        for rows in groups.values():
            if self.across and len({row.labels.get(self.across) for row in rows}) > 1:
                for table in across_table(rows, self.across, out.width, self.baseline):
                    print_wide(out, table)
            else:
                table, spare = row_table(rows, out.width)
                left_out |= dict.fromkeys(spare)
                print_wide(out, table)
        if left_out:
            out.print(f"Without room here: {', '.join(left_out)} (--json, --format).", **PLAIN)
        refused = {" ".join(row.labels.values()): row.reason for row in self.rows if row.reason}
        for what, why in refused.items():
            out.print(f"{what}: {why}", **PLAIN)
        for what, verdict in self.verdicts.items():
            out.print(f"{what}: {verdict} (at most {verdict.tolerance:.1e})", **PLAIN)
        for remark in self.remarks:
            out.print(remark, **PLAIN)

    def _content(self, place: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "command": self.command, "settings": dict(self.settings),
            "pattern": dict(self.pattern), **place, "verified": self.verified,
            "verdicts": {
                what: {**asdict(each), "verified": each.passed}
                for what, each in self.verdicts.items()
            },
            "remarks": self.remarks,
            **{name: each.records() for name, each in self.listings.items()},
            "rows": [row.record() for row in self.rows],
        }  # fmt: skip

    def end(self, comm: MPI.Intracomm, options: Options, against: str = "") -> int:
        """Collective. Finish it; the exit code is 1 after a wrong result, as rank 0 has it.

        ``against``: with what was verified, for a sentence about the verdicts.
        """
        if against and (verdicts := self._verdicts()):
            self.remarks.append(conclusion(verdicts, against))
        self.finish(comm, options)
        return int(comm.bcast(self.verified is False))


def flat(row: Row) -> dict[str, Any]:
    """Local. A row as one line of numbers, in seconds; without times those of its reason."""
    found: dict[str, Any] = dict(row.labels)
    if row.reason:
        return found | {"reason": row.reason}
    record = row.record()
    fastest, mean = row.ranks or (None, None)
    found |= {"min_s": fastest, "mean_s": mean, "max_s": record["median_s"]}
    found |= {name: record[name] for name in ("quartile_1_s", "quartile_3_s", "setup_s")}
    found["bytes_moved"] = record["bytes"]
    found |= {f"vs_{name}": value for name, value in record["ratios"].items()}
    found |= {name: record.get(name) for name in ("break_even", "error", "verified")}
    found |= {f"{name}_s": value for name, value in record["parts"].items()}
    return found | {name: each for name, each in single(record["metrics"]).items()
                    if name not in found}  # fmt: skip


def print_rows(rows: Sequence[Row], kind: str) -> None:
    """Local. To standard output: CSV, Markdown, or columns for awk, which begin after a #.

    Times are medians in seconds: of the fastest rank, of the mean over them, of the slowest.
    """
    lines = [flat(row) for row in rows]
    names = list(dict.fromkeys(name for line in lines for name in line))
    texts = [[_short(line.get(name)) for name in names] for line in lines]
    if kind == "csv":
        csv.writer(sys.stdout).writerows([names, *texts])
    elif kind == "markdown":
        for cells in (names, ["---"] * len(names), *texts):
            print(f"| {' | '.join(cells)} |")
    else:
        joined = [[text.replace(" ", "_") or NOTHING for text in cells] for cells in texts]
        heads = [name.replace(" ", "_") for name in names]
        heads[:1] = [f"# {name}" for name in heads[:1]]
        widths = [max(map(len, column)) for column in zip(heads, *joined, strict=True)]
        for cells in (heads, *joined):
            print(" ".join(text.ljust(w) for text, w in zip(cells, widths, strict=True)).rstrip())
    sys.stdout.flush()


def _short(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def write_json(path: str, content: Mapping[str, Any]) -> None:
    """Local. Write a JSON file, all of it or nothing, with the versions of everything."""
    text = json.dumps(_whole(content), indent=1, allow_nan=False) + "\n"
    replace_file(Path(path), text)


def _whole(content: Mapping[str, Any]) -> Any:
    return _finite({"schema": SCHEMA, "versions": versions(), **content})


def _finite(value: Any) -> Any:
    """Local. The same for JSON: None where a number is none; TypeError for what has no place."""
    if isinstance(value, Mapping):
        return {str(name): _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if hasattr(value, "tolist"):  # NumPy's
        return _finite(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(f"{type(value).__name__} cannot be written to JSON")
