"""``onesided report DIR``: one HTML file about what other commands measured, and what papers claim.

One process does it; in a job of several it is rank 0.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mpi4py import MPI

from onesided.apps.cli.commands import COMMANDS
from onesided.apps.cli.failures import CommandError, by_rank_0, words
from onesided.apps.cli.files import NEEDS_MATPLOTLIB, replace_file
from onesided.apps.cli.options import Options
from onesided.apps.report.claims import CLAIM_COLUMNS, Finding, judged
from onesided.apps.report.figures import Plot, canvas, plots
from onesided.apps.report.page import counted_of, page
from onesided.apps.report.result import PARTS, Result

ENOUGH = 3  # parts of an envelope that a file of ours has at least
LONGEST = 80  # letters of a title in the name of a file
LISTED = ("file", "figure")  # the columns of the list of figures
#: In this order they stand on the page, others last.
ORDER = [command.name for command in COMMANDS]


def load(file: Path) -> Result | None:
    """Local. What a command wrote; None where it is something else, or empty.

    :class:`CommandError` for a file that is broken or of another version.
    """
    try:
        text = file.read_text(encoding="utf-8")
        if not text.strip():
            return None
        content: Any = json.loads(text, parse_constant=lambda _: None)
    except OSError as error:
        raise CommandError(words(error)) from error
    except (ValueError, RecursionError) as error:  # no text, numbers too long, lists too deep
        raise CommandError(f"{file}: broken JSON: {words(error)}") from error
    ours = isinstance(content, dict) and sum(name in content for name in (*PARTS, "machine"))
    return Result(file.name, content) if ours and ours >= ENOUGH else None


def results_of(path: str) -> tuple[list[Result], list[str]]:
    """Local. The results in a folder, and which of its JSON files are none.

    :class:`CommandError` where there is no result.
    """
    folder = Path(path)
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "No such folder"
        raise CommandError(f"{path}: {what}")
    found, left_out = [], []
    for file in sorted(each for each in folder.glob("*.json") if each.is_file()):
        result = load(file)
        if result is None:
            why = "no result" if file.stat().st_size else "empty, its command did not end"
            left_out.append(f"{file.name} ({why})")
        else:
            found.append(result)
    if not found:
        others = f" but {', '.join(left_out)}" if left_out else ""
        raise CommandError(
            f"{path}: no results in this folder{others}; commands write them with --json FILE"
        )
    return sorted(found, key=lambda each: [*ORDER, each.command].index(each.command)), left_out


def groups(results: Sequence[Result], *, mixed: bool) -> list[list[Result]]:
    """Local. The results of one machine and MPI each.

    :class:`CommandError` where there are several, and they are not to be ``mixed``.
    """
    found: dict[tuple[str, str, str], list[Result]] = {}
    others = [result for result in results if not result.machine]
    for result in results:
        if result.machine:
            found.setdefault(result.place, []).append(result)
    if len(found) > 1 and not mixed:
        told = "; ".join(
            f"{each[0].name}: {library} on {processor} ({system})"
            for (system, processor, library), each in found.items()
        )
        raise CommandError(
            f"results of {len(found)} different machines or MPIs (--mixed groups them): {told}"
        )
    first, *rest = found.values() or [[]]
    return [[*first, *others], *rest]


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command."""

    def tell() -> None:
        for line in make(options):
            print(line, flush=True)

    by_rank_0(comm, tell)
    return 0


def make(options: Any) -> list[str]:
    """Local. Write the page and the figures; returns what to tell. :class:`CommandError`."""
    results, left_out = results_of(options.folder)
    grouped = groups(results, mixed=options.mixed)
    found = [(each, judged(each)) for each in grouped]
    told = []
    try:
        if options.figures is not None:
            told += export(found, Path(options.figures))
        replace_file(Path(options.output), page(found, left_out))
    except OSError as error:
        raise CommandError(words(error)) from error
    count = f"{len(results)} result{'' if len(results) == 1 else 's'}"
    told.insert(0, f"{options.output}: {count}")
    for each, findings in found:
        before = f"{each[0].place[2]}: " if len(found) > 1 else ""
        told.append(f"{before}claims of papers: {counted_of(None, findings)}")
    return told + [f"left out: {each}" for each in left_out]


def export(found: Sequence[tuple[Sequence[Result], Sequence[Finding]]], folder: Path) -> list[str]:
    """Local. Every figure into a folder, as PNG and CSV, and the verdicts into ``claims.csv``.

    ``figures.csv`` lists the files; those that a run before has listed there go. Returns a sentence
    where pictures are skipped.
    """
    folder.mkdir(parents=True, exist_ok=True)
    listed = folder / "figures.csv"
    if listed.exists():
        text = listed.read_text(encoding="utf-8", errors="replace")
        heads, *before = list(csv.reader(text.splitlines())) or [[]]
        if tuple(heads) != LISTED:
            raise CommandError(f"{listed} is in the way: it lists no figures of a report")
        for name, _ in before:
            (folder / Path(name).name).unlink(missing_ok=True)
    columns = ("system", "processor", "mpi", *CLAIM_COLUMNS)
    rows = [(*each[0].place, *finding.row()) for each, findings in found for finding in findings]
    _write_csv(folder / "claims.csv", columns, rows)
    drawn = find_spec("matplotlib") is not None
    every: list[Plot] = [plot for each, _ in found for result in each for plot in plots(result)]
    written = []
    for number, plot in enumerate(every, 1):
        slug = re.sub(r"[^a-z0-9]+", "-", plot.title.lower())[:LONGEST].strip("-")
        name = f"{number:02d}-{slug}"
        written += [(f"{name}{ending}", plot.title) for ending in (".csv", ".png")[: 1 + drawn]]
        _write_csv(folder / f"{name}.csv", *plot.table())
        if drawn:
            canvas(plot).savefig(folder / f"{name}.png")
    _write_csv(listed, LISTED, written)
    return [] if drawn else [f"{len(every)} PNG skipped, they need matplotlib: {NEEDS_MATPLOTLIB}"]


def _write_csv(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
