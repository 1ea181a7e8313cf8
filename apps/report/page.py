"""The page of a report: its first screen, a section for every result, break-even, the claims."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from statistics import median
from string import Template
from typing import Any

from onesided.apps.cli.report import METHOD, NOTHING, cells_of, shown
from onesided.apps.report.claims import WORDS, Finding
from onesided.apps.report.figures import FORMATS, OPPONENTS, Plot, plots, svg
from onesided.apps.report.result import Entry, Result, part

TITLE = "Onesided: what was measured"
FEW = 8  # rows; a longer table is folded
FEW_BARS = 16  # of a figure that can be read where it is small
UNSTEADY = 1.3  # third quartile over the first, from which on a machine is said not to be quiet
BREAK_EVEN = (
    "Break-even: N iterations of a persistent exchange take T_init + N T_persistent, of the plain "
    "call N T_MPI; the set-up, freeing included, has paid after T_init / (T_MPI - T_persistent) "
    "iterations, rounded up (equations 1 to 3 of paper 000); never: it is not faster."
)
KINDS = {"holds here": "holds", "does not hold here": "fails", "unclear here": "unclear"}


def page(
    groups: Sequence[tuple[Sequence[Result], Sequence[Finding]]], left_out: Sequence[str]
) -> str:
    """Local. The whole file; nothing in it refers to anything outside.

    ``groups``: results of one machine and MPI each, with what is found about the claims.
    """
    drawn = [
        [_drawn(each, f"g{number}-{k}") for k, each in enumerate(results)]
        for number, (results, _) in enumerate(groups)
    ]
    parts = [_first_screen(results, drawn[number], f"g{number}")
             for number, (results, _) in enumerate(groups)]  # fmt: skip
    if left_out:
        parts.append(_p(f"Left out: {', '.join(left_out)}.", "faint"))
    if find_spec("matplotlib") is None:
        parts.append(_p("Without figures: they need matplotlib (the extra plot).", "faint"))
    for number, (results, findings) in enumerate(groups):
        parts += [
            _section(each, drawn[number][k], f"g{number}-{k}") for k, each in enumerate(results)
        ]
        parts += [_machine(results), _claims(findings)]
    template = (files("onesided.apps") / "data" / "report.html").read_text(encoding="utf-8")
    return Template(template).substitute(title=TITLE, body="\n".join(filter(None, parts)))


# -- markup ---------------------------------------------------------------------------------------


def _p(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def table(
    caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, prose: bool = False,
    marked_up: bool = False,
) -> str:
    """Local. The first column names the rows; ``marked_up``: the cells are HTML already."""
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    lines = []
    for row in rows:
        first, *others = row if marked_up else map(escape, row)
        cells = "".join(f"<td>{each}</td>" for each in others)
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    kind = ' class="prose"' if prose else ""
    return (
        f'<div class="scroll" tabindex="0"><table{kind}><caption>{escape(caption)}</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _fold(summary: str, inside: str, *, opened: bool = False) -> str:
    mark = " open" if opened else ""
    return f"<details{mark}><summary>{escape(summary)}</summary>{inside}</details>"


def _drawn(result: Result, prefix: str) -> list[tuple[Plot, str]]:
    """Local. The figures of a result and their SVG; none without matplotlib."""
    if find_spec("matplotlib") is None:
        return []
    return [(plot, svg(plot, f"{prefix}-f{k}")) for k, plot in enumerate(plots(result))]


def _figure(plot: Plot, image: str) -> str:
    heads, rows = plot.table()
    kind = FORMATS[plot.y[1]]
    across = FORMATS[plot.x[1]] if plot.lines else str
    lines = [
        [across(first), *(NOTHING if x is None else kind(x) for x in others)]
        for first, *others in rows
    ]
    numbers = _fold("Numbers", table(plot.title, heads, lines))
    return f"<figure>{image}{numbers}</figure>"


# -- what was found -------------------------------------------------------------------------------


def _first_screen(
    results: Sequence[Result], drawn: Sequence[Sequence[tuple[Plot, str]]], prefix: str
) -> str:
    """What was run, where, with one small figure each; what was slower, and when a set-up paid."""
    system, processor, library = results[0].place
    dates = sorted(result.date for result in results if result.date)
    when = f", {dates[0][:10]}" if dates else ""
    said = [_p(f"{library} on {processor} ({system}){when}. {unsteady(results)}")]
    cards = []
    for k, each in enumerate(results):
        images = (image for plot, image in drawn[k] if plot.height <= FEW_BARS)
        small = next(images, "").replace(f"{prefix}-{k}-f", f"{prefix}-{k}-small")  # ids
        head = f'<h3><a href="#{prefix}-{k}">{escape(each.command)}</a></h3>'
        about = _p(f"{each.layout}, {each.name}", "faint")
        cards.append(f'<div class="card">{head}{about}{_p(outcome(each))}{small}</div>')
    said.append(f'<div class="cards">{"".join(cards)}</div>')
    if any(entry.values.get("break_even") is not None for each in results for entry in each.timed):
        said.append(_p(BREAK_EVEN, "faint"))
    return "\n".join(said)


def outcome(result: Result) -> str:
    """Local. In a sentence or two: the methods against the opponent, and where all were slower."""
    if result.content.get("verified") is False:
        return "A RESULT WAS FOUND WRONG."
    names = {name for entry in result.timed for name in part(entry.values, "ratios")}
    name = next((each for each in OPPONENTS if each in names), "")
    by_method: dict[str, list[float]] = {}
    cases: dict[str, dict[str, float]] = {}
    for entry in result.timed:
        value = entry.ratio(name) if name else None
        if (value is None or not entry.right or entry.method in OPPONENTS
                or entry.method.startswith(("memcpy", "mpi4py-fft "))):
            continue
        by_method.setdefault(entry.method, []).append(value)
        case = " ".join(f"{k} {text}" for k, text in entry.labels.items()
                        if k not in (METHOD, "memory", "order"))  # fmt: skip
        best = cases.setdefault(case, {})
        best[entry.method] = min(value, best.get(entry.method, value))
    if not by_method:
        count, refused = len(result.timed), len(result.entries) - len(result.timed)
        more = f", {refused} that could not be measured" if refused else ""
        return f"{count} row{'' if count == 1 else 's'}{more}."
    best_method = min(by_method, key=lambda method: median(by_method[method]))
    told = [f"{best_method}: {_spread(by_method[best_method])} of the time of {name}"]
    if "auto" in by_method and best_method != "auto":
        told.append(f"auto: {_spread(by_method['auto'])}")
    slower = [case for case, values in cases.items() if min(values.values()) > 1.0]
    text = "; ".join(told) + "."
    if slower and slower != [""]:
        text += f" Slower by every method: {', '.join(slower[:6])}" + (
            f" and {len(slower) - 6} more." if len(slower) > 6 else ".")  # fmt: skip
    counts = [c for e in result.timed if isinstance(c := e.values.get("break_even"), int)]
    never = sum(e.values.get("break_even") == "never" for e in result.timed)
    paid = [f"never in {never} of {len(counts) + never} rows"] if never else []
    if counts:
        least, most = min(counts), max(counts)
        more = f" to {most} iterations (median {median(counts):.0f})" if most > least else ""
        paid.insert(0, f"after {least}{more or ' iterations'}")
    return text + (f" A set-up has paid {'; '.join(paid)}." if paid else "")


def _spread(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{median(values):.2f}" + (f" ({low:.2f} to {high:.2f})" if high > low else "")


def unsteady(results: Sequence[Result]) -> str:
    """Local. A sentence where the machine did something else as well; empty where it was quiet."""
    spreads = []
    for entry in (entry for result in results for entry in result.timed):
        first, third = entry.number("quartile_1_s"), entry.number("quartile_3_s")
        if first and third is not None:
            spreads.append(third / first)
    middle = median(spreads) if spreads else 1.0
    if middle < UNSTEADY:
        return ""
    return (
        f"The machine was not quiet: in half of the rows the third quartile of the times is at "
        f"least {middle:.1f} times the first. Verdicts may be others in another hour."
    )


# -- sections -------------------------------------------------------------------------------------


def _section(result: Result, drawn: Sequence[tuple[Plot, str]], anchor: str) -> str:
    """Figures, rows, listings and remarks of one result."""
    asked = [f"{k} {shown(k, v)}" for k, v in result.settings.items() if v not in (None, {}, [])]
    said = [f'<h2 id="{anchor}">{escape(result.command)} ({escape(result.layout)})</h2>']
    said += [_p(outcome(result)), _p(f"From {result.name}: {', '.join(asked)}.", "faint")]
    if drawn:
        figures = (_figure(plot, image) for plot, image in drawn)
        said.append(f'<div class="figures">{"".join(figures)}</div>')
    heads, rows = rows_table(result.entries)
    if rows:
        whole = table(f"Everything that {result.command} measured", heads, rows)
        said.append(_fold(f"All {len(rows)} rows", whole, opened=len(rows) <= FEW))
    for name, records in result.listings.items():
        columns = list(dict.fromkeys(key for record in records for key in record))
        lines = [[shown(c, record.get(c)) for c in columns] for record in records]
        said.append(_fold(name.replace("_", " "), table(name, columns, lines)))
    verdicts = [[what, shown("", each)] for what, each in part(result.content, "verdicts").items()]
    if verdicts:
        said.append(table("What was verified", ["what", "outcome"], verdicts, prose=True))
    said += [_p(remark, "faint") for remark in result.remarks]
    return f"<section>{''.join(said)}</section>"


def rows_table(entries: Sequence[Entry]) -> tuple[list[str], list[list[str]]]:
    """Local. Columns and a line for every row; what was not measured comes with the reason."""
    lines = []
    for entry in entries:
        sure = {name: entry.interval(name) for name in part(entry.values, "ratios")}
        ratios = {f"vs {name}": str(each) for name, each in sure.items() if each is not None}
        lines.append(cells_of(entry.values) | ratios)
    columns = list(dict.fromkeys(name for entry in entries for name in entry.labels))
    others = dict.fromkeys(name for line in lines for name in line)
    columns += [name for name in others if name not in columns]
    return columns, [[line.get(name, NOTHING) for name in columns] for line in lines]


def _machine(results: Sequence[Result]) -> str:
    """What all results have in common, and where they differ."""
    rows: dict[str, dict[str, None]] = {}
    for result in results:
        for name, value in {**result.machine, **result.versions}.items():
            rows.setdefault(name.replace("_", " "), {})[shown("", value)] = None
    known = [[name, "; ".join(values)] for name, values in rows.items()]
    whole = table("Facts; several where the results differ", ["fact", "value"], known, prose=True)
    return f"<h2>Machine and MPI</h2>{whole}"


def _claims(findings: Sequence[Finding]) -> str:
    """A table for every paper, last of all."""
    said = ["<h2>What papers claim, and what holds here</h2>", _p(WORDS)]
    for paper in dict.fromkeys(finding.claim.paper for finding in findings):
        rows = []
        for each in findings:
            if each.claim.paper is paper:
                where = f'{escape(each.claim.words)}<br><span class="faint">'
                kind = KINDS.get(each.verdict, "open")
                rows.append([
                    f"{where}{escape(each.claim.where)}</span>", escape(each.variant),
                    escape(each.evidence), f'<span class="verdict {kind}">{each.verdict}</span>',
                ])  # fmt: skip
        caption = f"{paper.title} ({paper.name}); measured there: {paper.machine}"
        heads = ("claim", "variant", "here", "verdict")
        whole = table(caption, heads, rows, prose=True, marked_up=True)
        said.append(_fold(f"{paper.title}: {counted_of(paper, findings)}", whole))
    return f"<section>{''.join(said)}</section>"


def counted_of(paper: Any, findings: Sequence[Finding]) -> str:
    """Local. How many verdicts of each kind there are, in words."""
    every = [each.verdict for each in findings if paper in (None, each.claim.paper)]
    return ", ".join(f"{every.count(kind)} {kind}" for kind in dict.fromkeys(every))
