"""The file of what was measured: a line for every part, written as soon as it is there.

Jobs append to it, and whoever starts them. A run that is killed goes on from it; a line that was
cut off is as if it was not there. A benchmark with ``--json FILE`` keeps its parts beside that
file until all are there, and goes on with them where it is called again with the same options.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mpi4py import MPI

from onesided.apps.cli.failures import CommandError, from_rank_0, words
from onesided.apps.cli.machine import code, environment, library, versions
from onesided.apps.cli.report import Report, Row, beside, replace_file, resumable
from onesided.apps.cli.statistics import Verdict
from onesided.collectives.hardware import processor

SETTINGS, MACHINE, PART = "settings", "machine", "part"
LEVEL, RANKS = "thread_level", "ranks"


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
        return asdict(self) | {"rows": [row.kept() for row in self.rows]}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Part:
        """Local. What :meth:`record` wrote; KeyError, TypeError or ValueError for anything else."""
        verdicts = {what: Verdict(**verdict) for what, verdict in record["verdicts"].items()}
        rows = [Row.of(row) for row in record["rows"]]
        return cls(**{**record, "rows": rows, "verdicts": verdicts})


class Store:
    """Local. A file of parts by their names, which need not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, settings: Mapping[str, Any]) -> dict[str, Part]:
        """Make the file, or go on with it; returns its parts.

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
        return self.parts()

    def settings(self) -> dict[str, Any] | None:
        """What it was begun with; None where it was not."""
        every = (line[SETTINGS] for line in self._lines() if SETTINGS in line)
        return next(every, None)

    def add(self, name: str, part: Part) -> None:
        """Append a part; it is on the disk when this returns."""
        self._append({"name": name, PART: part.record()})

    def add_machine(self, facts: Mapping[str, object]) -> None:
        """Append where the parts that follow are measured."""
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
        """Parts with a row that could not be measured are as if they were not there."""
        kept = [
            line
            for line in self._lines()
            if PART not in line or not any(row["reason"] for row in line[PART]["rows"])
        ]
        replace_file(self.path, "".join(f"{json.dumps(line)}\n" for line in kept))

    def parts(self) -> dict[str, Part]:
        """By name, the last where there are several."""
        try:
            return {
                line["name"]: Part.of(line[PART]) for line in self._lines() if PART in line
            }
        except (KeyError, TypeError, ValueError) as error:
            raise CommandError(f"{self.path}: a part cannot be read: {words(error)}") from error

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


class Parts:
    """The parts of a benchmark, measured one after the other and added to its report.

    What a store has is not measured again: one that is given, or one beside the JSON file.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        report: Report,
        path: str | None,
        *,
        store: Store | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Collective. What was begun by other code, in another environment or with other options
        begins anew.

        Where a ``store`` is given, with ``settings`` of its own, it is a :class:`CommandError`.
        """
        given = dict(report.settings)
        own = None
        if store is None and path is not None and resumable(path):
            own = Store(beside(path))
        self._report = report
        self._store = (store or own) if comm.rank == 0 else None

        def begin() -> dict[str, Part]:
            begun = settings or {
                "command": report.command,
                "settings": given,
                "ranks": comm.size,
                "mpi": library(),
                "code": code(),
                "versions": versions(),
                "environment": environment(),
                "processor": processor(),
            }
            if own is not None and own.settings() != plain(begun):
                own.path.unlink(missing_ok=True)
            return {} if self._store is None else self._store.begin(begun)

        #: Those that are done, by name.
        self.done = from_rank_0(comm, begin)

    def add(self, name: str, measure: Callable[[Part], object], *, keep: bool = True) -> Part:
        """Collective over those that take part. Measure a part if it is not there, and add it.

        ``keep`` false: it is measured in any case, because it does more than can be kept.
        """
        part = self.done.get(name) if keep else None
        if part is None:
            part = Part()
            measure(part)
            if keep:
                self.done[name] = part
                if self._store is not None:
                    self._store.add(name, part)
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
