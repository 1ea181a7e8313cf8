"""``onesided report DIR``: one HTML file about what other commands measured, and what papers claim.

One process does it; in a job of several it is rank 0.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mpi4py import MPI

from onesided.apps.cli.failures import CommandError, by_rank_0, words
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import NEEDS_MATPLOTLIB, replace_file
from onesided.apps.report import sections_apps
from onesided.apps.report import sections_papers as papers
from onesided.apps.report.chart import save
from onesided.apps.report.claims import CLAIM_COLUMNS, Judged, judged
from onesided.apps.report.facts import facts, payoff, unsteady
from onesided.apps.report.figure import Figure
from onesided.apps.report.markup import Paragraph, slug
from onesided.apps.report.page import Block, Section, page
from onesided.apps.report.result import PARTS, Result
from onesided.apps.report.sections import section, usual_figures, usual_tables

# The results in a folder: which files they are, and what to do about others.

#: A file with fewer of the parts of an envelope is none of ours.
ENOUGH = 3
LARGEST = 1e60  # numbers that are not smaller are taken for none


@dataclass(frozen=True)
class Findings:
    """The results of a folder in order of their files, and which JSON files are none."""

    results: Sequence[Result]
    left_out: Sequence[str]


def findings(path: str) -> Findings:
    """Local. What is in a folder; its own folders are not looked into.

    An empty file, of a command that did not come to its end, is left out, as one of others is.
    :class:`CommandError` where there is no result, and for a file that is broken or of another
    version: what was measured would be missing.
    """
    folder = Path(path)
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "No such folder"
        raise CommandError(f"{path}: {what}")
    try:
        files = sorted(each for each in folder.glob("*.json") if each.is_file())
    except OSError as error:
        raise CommandError(words(error)) from error
    results, left_out = [], []
    for file in files:
        text = _text(file)
        content = _content(file, text) if text.strip() else None
        if content is not None and _is_ours(content):
            results.append(Result(file.name, content))
        else:
            why = "no result" if text.strip() else "empty, its command did not come to its end"
            left_out.append(f"{file.name} ({why})")
    if not results:
        others = f" but {', '.join(left_out)}" if left_out else ""
        raise CommandError(
            f"{path}: no results in this folder{others}; commands write them with --json FILE"
        )
    return Findings(results, left_out)


def groups(results: Sequence[Result], *, mixed: bool) -> list[Sequence[Result]]:
    """Local. The results of one machine and MPI each, in the order in which they come first.

    What tells no machine goes with the first of them.
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


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(words(error)) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{file}: no text in UTF-8 (byte {error.start})") from error


def _content(file: Path, text: str) -> Any:
    try:
        return json.loads(
            text, parse_int=_number(int), parse_float=_number(float), parse_constant=lambda _: None
        )
    except json.JSONDecodeError as error:
        raise CommandError(f"{file}: broken JSON, line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # lists too deep
        raise CommandError(f"{file}: broken JSON: {words(error)}") from error


def _number(kind: type[int] | type[float]) -> Callable[[str], int | float | None]:
    """How a number is read: none that is not a number, and none beyond all that is measured."""

    def read(text: str) -> int | float | None:
        return kind(text) if abs(float(text)) < LARGEST else None

    return read


def _is_ours(content: Any) -> bool:
    if not isinstance(content, dict):
        return False
    return sum(part in content for part in (*PARTS, "machine")) >= ENOUGH


# What a command's section shows, where it is not what any command's does.

#: In the order of the page.
FIGURES: Mapping[str, Callable[[Result], list[Figure]]] = {
    "bench alltoallv": papers.exchanges,
    "bench collectives": papers.collectives,
    "bench patterns": papers.patterns,
    "bench apps": sections_apps.applications,
    "bench broadcast": papers.broadcasts,
    "bench partitioned": papers.partitions,
    "bench partitioned --targets": sections_apps.comparisons,
    "bench rma-mt": papers.cells,
    "hpccg": sections_apps.mini_apps,
    "minife": sections_apps.minife,
    "minimd": sections_apps.mini_apps,
    "bench fft": usual_figures,
    "bench fft --targets": sections_apps.comparisons,
    "bench spmv": sections_apps.products,
    "bench spmv --targets": sections_apps.comparisons,
    "bench all": lambda result: [],
}
TABLES: Mapping[str, Callable[[Result], list[Block]]] = {
    "bench broadcast": papers.broadcasts_tables,
    "bench rma-mt": papers.cells_tables,
    "bench all": sections_apps.experiments,
}


def kinds_sections(results: Sequence[Result]) -> list[Section]:
    """Local. What the report says of each; other commands come last, by the names of the files."""
    places = {command: place for place, command in enumerate(FIGURES)}
    return [
        section(
            each,
            FIGURES.get(each.command, usual_figures),
            TABLES.get(each.command, usual_tables),
        )
        for each in sorted(results, key=lambda each: places.get(each.command, len(places)))
    ]


# The figures of a report as files of their own: PNG where matplotlib is installed, and CSV. And the
# verdicts.

LONGEST = 80  # letters of a title in the name of a file

#: Where something was measured: system, processor and MPI.
Place = tuple[str, str, str]
PLACE_COLUMNS = ("system", "processor", "mpi")


def export(figures: Sequence[Figure], verdicts: Mapping[Place, Judged], path: str) -> str:
    """Local. Write every figure into the folder ``path``, which is made if need be.

    So are the ``verdicts`` about claims, by machine and MPI, into ``claims.csv``. Returns a
    sentence about pictures that were skipped, for want of matplotlib. Figures are numbered, so that
    none of the same title overwrites another.
    """
    folder = Path(path)
    drawn = find_spec("matplotlib") is not None
    skipped = []
    folder.mkdir(parents=True, exist_ok=True)
    rows = ((*place, *row) for place, each in verdicts.items() for row in each.rows())
    _write_csv(folder / "claims.csv", (*PLACE_COLUMNS, *CLAIM_COLUMNS), rows)
    for number, figure in enumerate(figures, 1):
        name = f"{number:02d}-{slug(figure.title)[:LONGEST].strip('-')}"
        _write_csv(folder / f"{name}.csv", *figure.values())
        if drawn:
            save(str(folder / f"{name}.png"), figure.title, [figure])
        else:
            skipped.append(f"{name}.png")
    return f"PNG skipped, it {NEEDS_MATPLOTLIB}: {', '.join(skipped)}" if skipped else ""


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


TITLE = "Onesided: what was measured"


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command."""

    def tell() -> None:
        for line in make(options):
            print(line, flush=True)

    by_rank_0(comm, tell)
    return 0


def make(options: Options) -> list[str]:
    """Local. Write the page and the figures; returns what to tell. :class:`CommandError`."""
    found = findings(options.folder)
    grouped = groups(found.results, mixed=options.mixed)
    parts, told = [], []
    verdicts: dict[Place, Judged] = {}
    for results in grouped:
        place = results[0].place
        verdicts[place] = found_out = judged(results)
        before = f"{place[2]}: " if len(grouped) > 1 else ""
        told.append(f"{before}{found_out.counted}")
        told += [f"{before}{each}" for each in [unsteady(results)] if each]
        parts.append((results, sections(results, found_out)))
    whole = parts[0][1] if len(parts) == 1 else [_group(*part) for part in parts]
    figures = [figure for each in whole for figure in each.figures]
    skipped = ""
    try:
        if options.figures is not None:
            skipped = export(figures, verdicts, options.figures)
        text = page(TITLE, _intro(found, grouped, told, skipped), whole)
        replace_file(Path(options.output), text)
    except OSError as error:
        raise CommandError(words(error)) from error
    lines = [f"{options.output}: {_counted(found)}, {len(figures)} figures", *told]
    lines += [f"left out: {each}" for each in found.left_out]
    return lines + ([skipped] if skipped else [])


def sections(results: Sequence[Result], verdicts: Judged) -> list[Section]:
    """Local. Everything about the results of one machine and MPI."""
    paid = payoff(results)
    return [
        verdicts.section(),
        *kinds_sections(results),
        *([paid] if paid is not None else []),
        facts(results),
    ]


def _group(results: Sequence[Result], below: Sequence[Section]) -> Section:
    system, processor, library = results[0].place
    return Section(f"{library} on {processor} ({system})", below=below)


def _intro(
    found: Findings, grouped: Sequence[Sequence[Result]], told: Sequence[str], skipped: str
) -> list[Paragraph]:
    system, processor, library = grouped[0][0].place
    where = f"{library} on {processor} ({system})"
    if len(grouped) > 1:
        where = f"{len(grouped)} groups of different machines or MPIs, which must not be compared"
    said = [Paragraph(f"{where}. {_counted(found)}."), *(Paragraph(each) for each in told)]
    if found.left_out:
        said.append(Paragraph(f"Left out: {', '.join(found.left_out)}.", "remark"))
    return said + ([Paragraph(skipped, "remark")] if skipped else [])


def _counted(found: Findings) -> str:
    count = len(found.results)
    return f"{count} result{'' if count == 1 else 's'}"
