"""The file of what was measured: a line for every cell, written as soon as it is there.

Jobs append to it, and whoever starts them. A run that is killed goes on from it; a line that was
cut off is as if it was not there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from onesided.apps.cli.failures import CommandError, words

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
        wanted = json.loads(json.dumps(settings))
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
        beside = self.path.with_name(self.path.name + ".new")
        beside.write_text(whole, encoding="utf-8")
        os.replace(beside, self.path)

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
