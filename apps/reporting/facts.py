"""Machine and MPI: what all results of a group have in common, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from onesided.apps.reporting.result import Result
from onesided.apps.reporting.section import Section
from onesided.apps.reporting.sections.rows import text
from onesided.apps.reporting.table import Table

UNSTEADY = 1.3  # third quartile over the first, from which on a machine is said not to be quiet
#: Facts of a machine by their names in the files.
NAMES: Mapping[str, str] = {
    "processor": "processor",
    "system": "system",
    "cores": "cores of rank 0",
    "all_cores": "cores of all ranks together",
    "hosts": "machines (virtual nodes of one count once)",
    "ranks": "ranks",
    "nodes": "nodes",
    "ranks_per_node": "ranks per node",
    "thread_level": "thread level of MPI",
}


def facts(results: Sequence[Result]) -> Section:
    """Local. A table of facts, and one of the results."""
    rows: dict[str, dict[str, None]] = {}
    for result in results:
        for name, words in NAMES.items():
            _note(rows, words, result.machine.get(name))
        for name, value in result.versions.items():
            _note(rows, str(name), value)
    known = [[name, "; ".join(values)] for name, values in rows.items()]
    files = [[each.name, each.command, each.layout] for each in results]
    return Section(
        "Machine and MPI",
        [
            Table("Facts; several where the results differ", ["fact", "value"], known, prose=True),
            Table("Results", ["file", "command", "where"], files, prose=True),
        ],
    )


def unsteady(results: Sequence[Result]) -> str:
    """Local. A sentence where the machine did something else as well; empty where it was quiet."""
    spreads = []
    for entry in (entry for result in results for entry in result.timed):
        first, third = entry.number("quartile_1_s"), entry.number("quartile_3_s")
        if first is not None and third is not None and first > 0:
            spreads.append(third / first)
    middle = median(spreads) if spreads else 1.0
    if middle < UNSTEADY:
        return ""
    return (
        f"The machine was not quiet: in half of the rows the third quartile of the times is at "
        f"least {middle:.1f} times the first. Verdicts may be others in another hour."
    )


def _note(rows: dict[str, dict[str, None]], name: str, value: Any) -> None:
    if value is not None:
        rows.setdefault(name, {})[text(value)] = None
