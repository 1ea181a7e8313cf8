"""What a command says at its end: a table for a person, a JSON file for a program."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, median
from typing import Any, Self

from mpi4py import MPI
from rich.console import Console, RenderableType
from rich.table import Table

from onesided.apps.cli.failures import CommandError, by_rank_0, words
from onesided.apps.cli.machine import circumstances, facts, library, versions
from onesided.apps.cli.options import FileName, FolderName, Options, Picture
from onesided.apps.cli.progress import PLAIN_WIDTH, console
from onesided.apps.cli.statistics import Interval, Target, Verdict, break_even, paired, quartiles
from onesided.collectives.hardware import Layout

SCHEMA = 1  # of the JSON files; another number where a program must read them otherwise
NEVER = "never"
BASELINE = "mpi"  # the method that every other is compared with: the MPI's own call
NEEDS_MATPLOTLIB = "needs matplotlib (the extra plot)"
NOTHING = "-"
MOST_TIMES = 200  # of a row that are written to JSON
AIMED = ("bound", "opponent")  # labels that a missed target is told without
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
    if there was one. ``aim``: what the ratio to the opponent that it names is to be; it is a
    target where ``wanted``; ``in_full``: the table has it beside all else, and does not only
    compare the two. ``used``: the method that ``auto`` chose.

    ``facts`` are for JSON alone. Of the table ``shown`` has more cells, and ``hidden`` names
    those that it leaves out, and so does what is right about an error.
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
    aim: Target | None = None
    wanted: bool = False
    in_full: bool = False
    used: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)
    hidden: Sequence[str] = ()

    def kept(self) -> dict[str, Any]:
        """Local. Everything, for a program that goes on with it: see :meth:`of`."""
        return asdict(self)

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Self:
        """Local. What :meth:`kept` told; KeyError, TypeError or ValueError for anything else."""
        given = {each.name: kept[each.name] for each in fields(cls)}
        for name, part in (("verdict", Verdict), ("aim", Target)):
            if given[name] is not None:
                given[name] = part(**given[name])
        return cls(**given)

    @property
    def intervals(self) -> dict[str, Interval]:
        """Local. Of the ratios to what the row is compared with."""
        return {
            name: Interval.of(paired(self.times, times)) for name, times in self.against.items()
        }

    @property
    def mean(self) -> float:
        """Local. Of the times."""
        return fmean(self.times)

    @property
    def ratios(self) -> dict[str, float]:
        """Local. Medians of the ratios to what the row is compared with."""
        return {name: median(paired(self.times, times)) for name, times in self.against.items()}

    @property
    def reached(self) -> Interval | None:
        """Local. What ``aim`` is about, where both were timed."""
        if self.aim is None or not self.times:
            return None
        theirs = self.against.get(self.aim.opponent, ())
        if not theirs and not self.aim.seconds:
            return None
        return Interval.of(self.aim.ratios(self.times, theirs))

    @property
    def missed(self) -> str:
        """Local. In words, what was not reached; empty where it was, or nothing is wanted."""
        reached = self.reached
        if self.aim is None or reached is None or not self.wanted or self.aim.met(reached.median):
            return ""
        what = " ".join(text for name, text in self.labels.items() if name not in AIMED)
        return (
            f"{what} against {self.aim.opponent}: {reached}, "
            f"{self.aim.words} {self.aim.bound:.2f} is wanted"
        )

    @property
    def break_even(self) -> int | str | None:
        """Local. Iterations after which the set-up has paid, or "never"; None: nothing to tell."""
        if self.setup is None or self.against.get(BASELINE, self.times) is self.times:
            return None
        count = break_even(self.setup, median(self.against[BASELINE]), median(self.times))
        return NEVER if count is None else count

    def record(self) -> dict[str, Any]:
        """Local. For JSON; times in seconds. ``labels`` has them once more, as they are shown."""
        found: dict[str, Any] = {**self.labels, "labels": dict(self.labels), **self.facts}
        if self.reason:
            return found | {"reason": self.reason}
        first, middle, third = quartiles(self.times)
        if self.verdict is not None:
            found |= {"error": self.verdict.error, "verified": self.verdict.passed}
        if self.used:
            found["used"] = self.used
        intervals = self.intervals
        found |= {
            **self.values,
            "setup_s": self.setup,
            "iterations": len(self.times),
            "median_s": middle,
            "mean_s": self.mean,
            "quartile_1_s": first,
            "quartile_3_s": third,
            "bytes": self.nbytes,
            "gigabytes_per_s": self.nbytes / middle / 1e9,
            "ratios": {name: each.median for name, each in intervals.items()},
            "intervals": {name: [each.low, each.high] for name, each in intervals.items()},
            "break_even": self.break_even,
            "parts": {name: median(times) for name, times in self.details.items()},
        }
        step = -(-len(self.times) // MOST_TIMES)
        found |= {"times_s": list(self.times[::step]), "times_step": step}
        reached = self.reached
        if self.aim is not None and reached is not None:
            found |= {
                "target": self.aim.bound if self.wanted else None,
                "reached": reached.median,
                "reached_interval": [reached.low, reached.high],
                "opponents_times_s": list(self.against.get(self.aim.opponent, ())[::step]),
            }
        return found

    def cells(self) -> dict[str, str]:
        """Local. For the table."""
        if self.reason:
            return dict(self.labels)
        shown = dict(self.labels)
        if self.used:
            shown["method"] = f"{self.labels['method']} ({self.used})"
        reached = self.reached
        if self.aim is not None and reached is not None and not self.in_full:
            shown.pop("bound", None)
            return shown | self._compared(self.aim, reached)
        first, middle, third = quartiles(self.times)
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
        if self.verdict is not None and not (self.verdict.passed and "error" in self.hidden):
            shown["error"] = str(self.verdict)
        for name, number in self.values.items():
            shown[name] = NOTHING if number is None else f"{number:.2f}"
        if self.aim is not None and reached is not None and self.wanted:
            shown |= self._target(self.aim, reached)
        left_out = [name for name in self.hidden if name != "error"]
        return {name: text for name, text in shown.items() if name not in left_out} | dict(
            self.shown
        )

    def _compared(self, aim: Target, reached: Interval) -> dict[str, str]:
        """Of a row that has an aim only what is compared."""
        theirs = self.against.get(aim.opponent, ())
        told = {
            "ours": duration(median(self.times)),
            "opponent's": duration(median(theirs)) if theirs else NOTHING,
            "reached": str(reached),
            **self._target(aim, reached),
        }
        if self.verdict is not None and not self.verdict.passed:
            told["error"] = str(self.verdict)
        return told

    def _target(self, aim: Target, reached: Interval) -> dict[str, str]:
        if not self.wanted:
            return {"target": NOTHING, "": ""}
        met = "met" if aim.met(reached.median) else "MISSED"
        sure = "" if aim.sure(reached) else "?"
        return {"target": f"{aim.words} {aim.bound:.2f}", "": met + sure}


def compared(
    labels: Mapping[str, str],
    ours: Sequence[float],
    theirs: Sequence[float],
    aim: Target,
    *,
    wanted: bool,
    nbytes: int = 0,
    verdict: Verdict | None = None,
) -> Row:
    """Local. A row of one thing of ours against one opponent, whom ``aim`` names."""
    return Row(
        {**labels, "opponent": aim.opponent, "bound": aim.words},
        ours,
        nbytes=nbytes,
        details={"opponent's": theirs} if theirs else {},
        against={aim.opponent: theirs} if theirs else {},
        aim=aim,
        wanted=wanted,
        verdict=verdict,
    )


def any_missed(rows: Sequence[Row]) -> bool:
    """Local. Whether a target has not been reached."""
    return any(row.missed for row in rows)


def conclusions(rows: Sequence[Row], nothing: str) -> list[str]:
    """Local. How many targets have been reached, and which not; ``nothing``: if none is set."""
    wanted = [row for row in rows if row.wanted and row.reached is not None]
    missed = [row.missed for row in wanted if row.missed]
    if not wanted:
        return [nothing]
    counted = f"{len(wanted) - len(missed)} of {len(wanted)} targets reached"
    return [counted, *(f"missed: {each}" for each in missed)]


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


def tables_over_bytes(
    title: str,
    rows: Sequence[Row],
    names: Sequence[str],
    nbytes: str,
    cell: Callable[[Row], str],
    most: int,
) -> Iterator[Table]:
    """Local. A line for the labels ``names``, and a column for every number of bytes.

    ``nbytes``: the fact of a row that has it; a table has at most so many columns of them.
    """
    lines: dict[tuple[str, ...], dict[int, str]] = {}
    for row in rows:
        key = tuple(row.labels[name] for name in names)
        lines.setdefault(key, {})[row.facts[nbytes]] = cell(row)
    sizes = sorted({each for found in lines.values() for each in found})
    for start in range(0, len(sizes), most):
        shown = sizes[start : start + most]
        table = Table(title=title, title_justify="left")
        for name in names:
            table.add_column(name, no_wrap=True)
        for each in shown:
            table.add_column(byte_count(each), justify="right", no_wrap=True)
        for key, found in lines.items():
            table.add_row(*key, *(found.get(each, NOTHING) for each in shown))
        yield table


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

    def code(self, comm: MPI.Intracomm, *, strict: bool = False) -> int:
        """Collective. The exit code, as rank 0 has it.

        1 after a wrong result, with ``strict`` also after a missed target.
        """
        failed = self.verified is False or (strict and any_missed(self.rows))
        return int(comm.bcast(failed))

    def table(self, title: str) -> RenderableType:
        """Local. The rows for a person."""
        return _table(title, self.rows)

    def machine(self, comm: MPI.Intracomm) -> Mapping[str, object]:
        """Collective. Where it was measured."""
        return facts(comm)

    def finish(
        self, comm: MPI.Intracomm, options: Options, *, interrupted: bool = False
    ) -> None:
        """Collective. Print the table on rank 0, and write the JSON file where one is wanted.

        What was kept beside the file to go on with is needed no longer, unless ``interrupted``.
        :class:`CommandError` on every rank where it cannot be written.
        """
        place = {"machine": dict(self.machine(comm)), "circumstances": circumstances(comm)}
        title = f"onesided {self.command}: {library()}, {Layout.of(comm)}"

        def tell() -> None:
            self._show(console(options.terminal), title)
            if options.json is not None:
                write_json(options.json, self._content(place))
                if not interrupted:
                    beside(options.json).unlink(missing_ok=True)

        by_rank_0(comm, tell)

    def _show(self, out: Console, title: str) -> None:
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

    def _content(self, place: Mapping[str, Any]) -> dict[str, Any]:
        """Local. For JSON."""
        return {
            "command": self.command,
            "settings": dict(self.settings),
            "pattern": dict(self.pattern),
            **place,
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

    def end(self, comm: MPI.Intracomm, options: Options) -> int:
        """Collective. Finish it as the options say; returns the exit code of the command."""
        self.finish(comm, options)
        return self.code(comm, strict=options.strict)


PLAIN: dict[str, Any] = {"markup": False, "highlight": False, "soft_wrap": True}


UNFINISHED = ".part"  # what the name of a file of cells ends with, beside that of the results


def beside(path: str) -> Path:
    """Local. Where a command keeps what it has measured until its JSON file is written."""
    return Path(path + UNFINISHED)


def write_json(path: str, content: Mapping[str, Any]) -> None:
    """Local. Write a JSON file, all of it or nothing, with the versions of everything."""
    whole = {"schema": SCHEMA, "versions": versions(), **content}
    text = json.dumps(whole, indent=1, default=_plain) + "\n"
    replace_file(Path(path), text)


def replace_file(path: Path, text: str) -> None:
    """Local. Write a file under another name, and move it; what is no file is written to."""
    if path.exists() and not path.is_file():  # a pipe, or what a shell makes of >(...)
        path.write_text(text, encoding="utf-8")
        return
    new = path.with_name(path.name + ".new")
    try:
        new.write_text(text, encoding="utf-8")
        os.replace(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _plain(value: Any) -> Any:
    """A number of NumPy's as one of Python's; TypeError for what has no place in JSON."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written to JSON")


def unwritable(path: str) -> str:
    """Local. Why a file cannot be written there, or nothing; nothing is made or changed."""
    file = Path(path)
    folder = file.parent
    if file.is_dir():
        code = errno.EISDIR
    elif not folder.is_dir():
        code = errno.ENOTDIR if folder.exists() else errno.ENOENT
    elif not os.access(file if file.exists() else folder, os.W_OK):
        code = errno.EACCES
    else:
        return ""
    return words(OSError(code, os.strerror(code), path))


def check_files(comm: MPI.Intracomm, options: Options) -> None:
    """Collective. :class:`CommandError` before the work where a file cannot be written."""

    def check() -> None:
        for name, value in vars(options).items():
            _check(name, value)

    by_rank_0(comm, check)


def _check(name: str, value: object) -> None:
    """Local. An option that may name a file or folder; OSError or :class:`CommandError`."""
    if isinstance(value, FolderName):
        Path(value).mkdir(parents=True, exist_ok=True)
        if not os.access(value, os.W_OK):
            raise CommandError(f"{value}: Permission denied")
    if isinstance(value, Picture):
        if find_spec("matplotlib") is None:
            raise CommandError(f"--{name} {NEEDS_MATPLOTLIB}")
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        known = FigureCanvasAgg.get_supported_filetypes()
        if Path(value).suffix[1:].lower() not in known:
            endings = ", ".join(sorted(known))
            raise CommandError(f"{value}: an image is one of {endings}, by the end of its name")
    if isinstance(value, FileName) and unwritable(value):
        raise CommandError(unwritable(value))


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
