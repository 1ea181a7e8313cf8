"""The file of what was measured: a line for every cell, written as soon as it is there.

Jobs append to it, and whoever starts them. A run that is killed goes on from it; a line that was
cut off is as if it was not there. A benchmark with ``--json FILE`` keeps its cells beside that
file until all are there, and goes on with them where it is called again with the same options.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from mpi4py import MPI

from onesided.apps.cli.failures import CommandError, words
from onesided.apps.cli.machine import commit, library
from onesided.apps.cli.report import Report, Row, beside, replace_file
from onesided.apps.cli.statistics import Verdict
from onesided.collectives.hardware import processor

SETTINGS, MACHINE, CELL = "settings", "machine", "cell"
LEVEL, RANKS = "thread_level", "ranks"


class Kept(Protocol):
    """What a line can have."""

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Local. What :meth:`record` wrote; KeyError, TypeError or ValueError for anything else."""


Cell = TypeVar("Cell", bound=Kept)
Outcome = TypeVar("Outcome", bound=Kept)


class Store(Generic[Cell, Outcome]):
    """Local. A file of cells and of what came of them, which need not be there yet."""

    def __init__(self, path: Path, cells: type[Cell], outcomes: type[Outcome]) -> None:
        self.path = path
        self._cells, self._kind = cells, outcomes

    def begin(self, settings: Mapping[str, Any]) -> int:
        """Make the file, or go on with it; returns how many cells it has.

        :class:`CommandError` where what it has was measured with other settings.
        """
        lines, before = self._lines(), self.settings()
        wanted = plain(settings)
        if before is None:
            if lines:
                raise CommandError(f"{self.path}: it does not begin with settings")
            self._append({SETTINGS: wanted})
        elif before != wanted:
            differing = [
                f"{name}: {before.get(name)!r} then, {wanted.get(name)!r} now"
                for name in dict.fromkeys((*before, *wanted))
                if before.get(name) != wanted.get(name)
            ]
            raise CommandError(
                f"{self.path} was measured with other settings ({'; '.join(differing)}); "
                "choose another folder, or --afresh"
            )
        return len(self.outcomes())

    def settings(self) -> dict[str, Any] | None:
        """What it was begun with; None where it was not."""
        every = (line[SETTINGS] for line in self._lines() if SETTINGS in line)
        return next(every, None)

    def add(self, cell: Cell, found: Outcome) -> None:
        """Append a cell; it is on the disk when this returns."""
        self._append({CELL: cell.record(), "outcome": found.record()})

    def add_machine(self, facts: Mapping[str, object]) -> None:
        """Append where the cells that follow are measured."""
        self._append({MACHINE: dict(facts)})

    def machine(self) -> dict[str, Any]:
        """That of the job with the most ranks, with the thread levels of all; empty before any."""
        jobs = [line[MACHINE] for line in self._lines() if isinstance(line.get(MACHINE), dict)]
        if not jobs:
            return {}
        levels = dict.fromkeys(str(job.get(LEVEL)) for job in jobs)
        largest = max(jobs, key=lambda job: int(job.get(RANKS, 0)))
        return {**largest, LEVEL: ", ".join(levels)}

    def forget_failures(self) -> None:
        """Failed cells are as if they had not been measured."""
        kept = [
            line for line in self._lines() if CELL not in line or not line["outcome"]["kind"]
        ]
        whole = "".join(f"{json.dumps(line)}\n" for line in kept)
        replace_file(self.path, whole)

    def outcomes(self, wanted: Sequence[Cell] | None = None) -> dict[Cell, Outcome]:
        """By cell what came of it, the last where there are several; only of those ``wanted``."""
        every = self._outcomes()
        if wanted is None:
            return every
        return {cell: every[cell] for cell in wanted if cell in every}

    def _outcomes(self) -> dict[Cell, Outcome]:
        found = {}
        for line in self._lines():
            if CELL not in line:
                continue
            try:
                found[self._cells.of(line[CELL])] = self._kind.of(line["outcome"])
            except (KeyError, TypeError, ValueError) as error:
                raise CommandError(f"{self.path}: a cell cannot be read: {words(error)}") from error
        return found

    def _append(self, line: Mapping[str, Any]) -> None:
        """A new line, also after one that was cut off."""
        with open(self.path, "a+b") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CommandError(words(error)) from error
        found = []
        for line in text.splitlines():
            try:
                content = json.loads(line)
            except ValueError:  # cut off
                continue
            if isinstance(content, dict):
                found.append(content)
        return found


class Sweep(Generic[Cell, Outcome]):
    """Cells that are measured one after the other, by all ranks or the first of them.

    What the store of rank 0 has is not measured again.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        store: Store[Cell, Outcome] | None,
        settings: Mapping[str, Any],
    ) -> None:
        """Collective. Rank 0 has the ``store``, if there is one, which goes on with ``settings``.

        :class:`CommandError` on all ranks for what it cannot go on with.
        """
        self._store, trouble = store, ""
        #: What came of the cells that are done.
        self.outcomes: dict[Cell, Outcome] = {}
        if store is not None:
            try:
                store.begin(settings)
                self.outcomes = store.outcomes()
            except (CommandError, OSError) as error:
                trouble = words(error)
        self.outcomes, trouble = comm.bcast((self.outcomes, trouble))
        if trouble:
            raise CommandError(trouble)

    def cell(self, cell: Cell, measure: Callable[[], Outcome]) -> Outcome:
        """Collective over those that take part. What came of a cell, now or before."""
        if cell not in self.outcomes:
            self.outcomes[cell] = measure()
            if self._store is not None:
                self._store.add(cell, self.outcomes[cell])
        return self.outcomes[cell]


@dataclass(frozen=True)
class Name:
    """What a benchmark calls a part of itself."""

    text: str

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        return {"name": self.text}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Name:
        """Local."""
        return cls(record["name"])


@dataclass
class Part:
    """What a part of a benchmark adds to its report; ``more``: what else it must remember."""

    rows: list[Row] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    pattern: dict[str, Any] = field(default_factory=dict)
    more: Any = None

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        return {
            "rows": [row.kept() for row in self.rows],
            "remarks": self.remarks,
            "verdicts": {what: asdict(verdict) for what, verdict in self.verdicts.items()},
            "pattern": self.pattern,
            "more": self.more,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Part:
        """Local. What :meth:`record` wrote."""
        return cls(
            [Row.of(row) for row in record["rows"]],
            record["remarks"],
            {what: Verdict(**verdict) for what, verdict in record["verdicts"].items()},
            record["pattern"],
            record["more"],
        )


class Parts(Sweep[Name, Part]):
    """The parts of a benchmark, added to its report; kept beside the JSON file if there is one."""

    def __init__(self, comm: MPI.Intracomm, report: Report, path: str | None) -> None:
        """Collective. What was begun with other options, or another commit, begins anew."""
        store: Store[Name, Part] | None = None
        begun = {
            "command": report.command,
            "settings": dict(report.settings),
            "ranks": comm.size,
            "mpi": library(),
            "commit": commit(),
            "processor": processor(),
        }
        if comm.rank == 0 and path is not None:
            store = Store(beside(path), Name, Part)
            if store.settings() != plain(begun):
                store.path.unlink(missing_ok=True)
        self._report = report
        super().__init__(comm, store, begun)

    def add(self, name: str, measure: Callable[[Part], object], *, keep: bool = True) -> Part:
        """Collective over those that take part. Measure a part if it is not there, and add it.

        ``keep`` false: it is measured in any case, because it does more than can be kept.
        """

        def measured() -> Part:
            part = Part()
            measure(part)
            return part

        part = self.cell(Name(name), measured) if keep else measured()
        self.take(part)
        return part

    def take(self, part: Part) -> None:
        """Local. Add a part to the report without keeping it."""
        report = self._report
        report.rows += part.rows
        report.remarks += part.remarks
        report.verdicts |= part.verdicts
        report.pattern = merged(report.pattern, part.pattern)


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Local. Both; objects of the same name are taken together."""
    found = dict(one)
    for name, value in other.items():
        mine = found.get(name)
        if isinstance(mine, dict) and isinstance(value, dict):
            value = {**mine, **value}
        found[name] = value
    return found


def plain(content: Mapping[str, Any]) -> Any:
    """Local. As it is once it has been in a JSON file."""
    return json.loads(json.dumps(content))
