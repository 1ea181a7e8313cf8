"""Machine and MPI: what all results of a group have in common, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from onesided.apps.cli.report import BASELINE, NEVER, duration
from onesided.apps.cli.statistics import break_even
from onesided.apps.report.figure import NOTHING
from onesided.apps.report.markup import Fold, Paragraph, Table
from onesided.apps.report.page import Block, Section
from onesided.apps.report.result import METHOD, Entry, Result
from onesided.apps.report.sections import named, text

# After how many iterations a set-up has paid: equations 1 to 3 of paper 000.

WORDS = (
    "N iterations of a persistent exchange take T_init + N T_persistent, of the plain call "
    "N T_MPI; the set-up has paid after N = T_init / (T_MPI - T_persistent) iterations, rounded "
    "up (equations 1 to 3 of paper 000). T_init includes freeing; times are medians; never: an "
    "iteration is not faster."
)
#: Labels in which a method and the plain call may differ although they do the same.
OWN = (METHOD, "memory", "order", "product")
#: Those of a column of counts.
COLUMNS = (METHOD, "order", "product")


def payoff(results: Sequence[Result]) -> Section | None:
    """Local. One table for each result that has methods with a set-up beside the plain call."""
    blocks: list[Block] = []
    for result in results:
        rows = _rows(result)
        if rows:
            caption = f"{result.command}, {result.layout} ({result.name})"
            blocks.append(_counts(f"N: {caption}", rows))
            labels = list(rows[0][0].labels)
            cells = [[*entry.labels.values(), *told] for entry, told in rows]
            columns = [*labels, "T_init", "T_MPI", "T_persistent", "N"]
            whole = Table(f"T_init and times: {caption}", columns, cells, heads=len(labels))
            blocks.append(Fold(f"T_init and times of {result.name}", whole))
    return Section("Break-even", [Paragraph(WORDS), *blocks]) if blocks else None


def iterations(entry: Entry, plain: Entry) -> int | str | None:
    """Local. N or "never"; None where something was not measured."""
    setup, mine, base = entry.number("setup_s"), entry.median, plain.median
    if setup is None or mine is None or base is None:
        return None
    count = break_even(setup, base, mine)
    return NEVER if count is None else count


def plain_calls(entries: Sequence[Entry]) -> dict[tuple[tuple[str, str], ...], Entry]:
    """Local. The rows of ``mpi`` by everything else that was the same."""
    return {case(entry): entry for entry in entries if entry.label(METHOD) == BASELINE}


def case(entry: Entry) -> tuple[tuple[str, str], ...]:
    """Local. The labels of what was done, whoever did it."""
    return tuple((name, words) for name, words in entry.labels.items() if name not in OWN)


def _rows(result: Result) -> list[tuple[Entry, list[str]]]:
    """The methods with a set-up, each with T_init, T_MPI, T_persistent and N in words."""
    calls = plain_calls(result.timed)
    found = []
    for entry in result.timed:
        plain = calls.get(case(entry))
        if plain is None or plain is entry or "opponent" in entry.labels:
            continue
        count = iterations(entry, plain)
        if count is not None:
            times = (entry.number("setup_s"), plain.median, entry.median)
            told = [duration(time) for time in times if time is not None]
            found.append((entry, [*told, text(count)]))
    return found


def _counts(caption: str, rows: Sequence[tuple[Entry, Sequence[str]]]) -> Table:
    """A row for everything that was done, a column for every method."""
    names = [name for name in rows[0][0].labels if name not in COLUMNS]
    methods = list(dict.fromkeys(named(entry, COLUMNS) for entry, _ in rows))
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for entry, told in rows:
        key = tuple(entry.label(name) for name in names)
        found.setdefault(key, {})[named(entry, COLUMNS)] = told[-1]
    cells = [
        [*(key or ("all",)), *(counts.get(method, NOTHING) for method in methods)]
        for key, counts in found.items()
    ]
    return Table(caption, [*(names or ["case"]), *methods], cells, heads=len(names) or 1)


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
