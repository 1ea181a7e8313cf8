"""``onesided report DIR``: one HTML file about what other commands measured, and what papers claim.

One process does it; in a job of several it is rank 0.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from mpi4py import MPI

from onesided.apps.failures import CommandError, words
from onesided.apps.reporting import registry
from onesided.apps.reporting.claims.verdicts import Judged, judged
from onesided.apps.reporting.export import export, sentence
from onesided.apps.reporting.facts import facts, unsteady
from onesided.apps.reporting.folder import Findings, findings, groups
from onesided.apps.reporting.page import page
from onesided.apps.reporting.payoff import payoff
from onesided.apps.reporting.result import Result
from onesided.apps.reporting.section import Section
from onesided.apps.reporting.table import Paragraph

TITLE = "Onesided: what was measured"


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command."""
    trouble = ""
    if comm.rank == 0:
        try:
            for line in make(options):
                print(line, flush=True)
        except CommandError as error:
            trouble = str(error)
    trouble = comm.bcast(trouble)
    if trouble:
        raise CommandError(trouble)
    return 0


def make(options: Namespace) -> list[str]:
    """Local. Write the page and the figures; returns what to tell. :class:`CommandError`."""
    found = findings(options.folder)
    grouped = groups(found.results, mixed=options.mixed)
    _check_output(options.output)
    parts, told = [], []
    for results in grouped:
        verdicts = judged(results)
        library = f"{results[0].place[2]}: " if len(grouped) > 1 else ""
        told.append(f"{library}{verdicts.counted}")
        told += [f"{library}{each}" for each in [unsteady(results)] if each]
        parts.append((results, sections(results, verdicts)))
    whole = parts[0][1] if len(parts) == 1 else [_group(*part) for part in parts]
    figures = [figure for each in whole for figure in each.figures]
    skipped = "" if options.figures is None else sentence(export(figures, options.figures))
    text = page(TITLE, _intro(found, grouped, told, skipped), whole)
    try:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text)
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
        *registry.sections(results),
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


def _check_output(path: str) -> None:
    """An error before the work, and nothing lost where the work fails."""
    try:
        with open(path, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise CommandError(words(error)) from error
