"""What every cell of a sweep is measured with, and the file that tells a job its cells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onesided.apps.failures import CommandError, words
from onesided.apps.rmamt.cell import Cell


@dataclass(frozen=True)
class Plan:
    """``messages``: of a thread in an epoch, fewer where a window would have more than ``window``
    bytes; ``neighbours``: of a halo.

    ``runs``: how often a cell is measured with new threads and a new window, each time at most
    ``iterations`` rounds and about ``seconds``. ``limit``: seconds after which a cell hangs.
    """

    messages: int
    window: int
    neighbours: int
    runs: int
    iterations: int
    seconds: float
    limit: float

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Plan:
        """Local. What :meth:`record` wrote; KeyError, TypeError or ValueError for anything else."""
        return cls(
            int(record["messages"]),
            int(record["window"]),
            int(record["neighbours"]),
            int(record["runs"]),
            int(record["iterations"]),
            float(record["seconds"]),
            float(record["limit"]),
        )


@dataclass(frozen=True)
class Task:
    """The cells of a job, one after the other; ``library``: the loop in C, empty without one."""

    cells: Sequence[Cell]
    plan: Plan
    library: str

    def write(self, path: Path) -> None:
        """Local."""
        content = {
            "cells": [cell.record() for cell in self.cells],
            "plan": self.plan.record(),
            "library": self.library,
        }
        path.write_text(json.dumps(content), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Task:
        """Local. :class:`CommandError` for a file that :meth:`write` has not written."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            cells = [Cell.of(each) for each in content["cells"]]
            return cls(cells, Plan.of(content["plan"]), str(content["library"]))
        except OSError as error:
            raise CommandError(words(error)) from error
        except (KeyError, TypeError, ValueError) as error:
            raise CommandError(f"{path}: no cells of bench rma-mt: {words(error)}") from error
