"""What the pages do not say themselves: tables of results, methods, commands, claims.

A line ``<!-- generate: NAME -->`` of a page is replaced by Markdown when the site is built. Tables
that shall be seen without the site stand below ``<!-- table: NAME WORDS... -->``, up to
``<!-- end -->``; ``python docs/_ext/pages.py`` writes them. Nothing here needs Sphinx but
:func:`setup`.
"""

from __future__ import annotations

import argparse
import csv
import html
import inspect
import json
import re
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent
RESULTS = DOCS / "results"
MARK = re.compile(r"^<!-- generate: (\w+) ?(.*?) -->$", re.MULTILINE)
TABLE = re.compile(r"^(<!-- table: (\w+) (.*?) -->)\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


# -- results --------------------------------------------------------------------------------------


def numbers(text: str, count: int) -> list[float]:
    """Those of a cell, one for each contestant, "-" for none; one number counts for all."""
    found = [float(word.replace("-", "nan")) for word in text.split(" / ")] if text else []
    return found * count if len(found) == 1 else found


def missed(measured: str, wanted: str, better: str) -> bool:
    """Whether some number of a cell falls short of its target."""
    here = numbers(measured, 1)
    pairs = zip(here, numbers(wanted, len(here)), strict=False)
    return any(a > b if better == "lower" else a < b for a, b in pairs)


def results(name: str) -> str:
    """A table of docs/results."""
    return results_table(name, targets=False)


def targets(name: str) -> str:
    """The same with what is wanted in brackets; what misses its target is marked."""
    return results_table(name, targets=True)


def results_table(name: str, targets: bool) -> str:
    """A table of docs/results, and below it what it is, from where, and how to repeat it."""
    found = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    lines = [f"| {' / '.join(found['contestants'])} | {' | '.join(found['columns'])} |"]
    lines.append(f"| --- |{' --: |' * len(found['columns'])}")
    misses = wanted_cells = 0
    for row in found["rows"]:
        cells = []
        wanted = row.get("wanted", [""] * len(row["measured"]))
        for here, target in zip(row["measured"], wanted, strict=True):
            if targets and target:
                short = missed(here, target, row.get("better", found["better"]))
                wanted_cells, misses = wanted_cells + 1, misses + short
                here = f"**{here}**" if short else here
                here += f" ({target})"
            cells.append(here)
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    note = f"{found['title']}. {found['measured_on']}. Repeat it: `{found['command']}`."
    if wanted_cells:
        note = f"{found['title']}. In brackets what is wanted; {misses} of {wanted_cells} cells "
        note += "miss it, in bold."
    return "\n".join([*lines, "", note])


def calls(_: str) -> str:
    """Of what every call costs: messages and bytes, of set-ups and of what is repeated with any."""
    lines = (RESULTS / "calls.txt").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    once = re.compile(r"first|Free|destroy|free|8 iterations")
    chosen = [row for row in rows if not once.search(row[0]) and row[3] != "0"]
    return "\n".join(f"| {' | '.join([*row[:4], row[5]])} |" for row in chosen)


# -- methods, commands -----------------------------------------------------------------------------


def methods(operation: str) -> str:
    """The table of an operation's methods, from the registry."""
    from onesided import collectives

    lines = ["| method | how it moves data | any order | `auto` considers it |"]
    lines.append("| --- | --- | --- | --- |")
    for name, method in collectives.methods(operation).items():
        words = [f"`{name}`", method.summary, "yes" if method.any_order else "no"]
        lines.append(f"| {' | '.join([*words, 'yes' if method.candidate else ''])} |")
    return "\n".join(lines)


def option(action: argparse.Action) -> str:
    """How an option, or a positional argument, is written."""
    value = action.metavar
    if isinstance(value, tuple):
        value = " ".join(value)
    if value is None and action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return str(value or action.dest)
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {value or action.dest.upper()}"


def commands(_: str) -> str:
    """Every command with its options, from the parsers that read them."""
    from onesided.apps.cli.main import parsers

    text = []
    for parser in parsers():
        text += [f"## {parser.prog}", "", parser.description or "", ""]
        text += ["| option | what it says |", "| --- | --- |"]
        for action in parser._actions:
            if action.help == argparse.SUPPRESS or action.dest == "help":
                continue
            known = {**vars(action), "prog": parser.prog}
            words = (action.help or "") % known
            shown = html.escape(words, quote=False).replace("|", "\\|").replace("*", "\\*")
            text.append(f"| `{option(action)}` | {shown} |".replace("\n", " "))
        text.append("")
    return "\n".join(text)


def verdicts() -> dict[tuple[str, str], dict[str, dict[str, list[str]]]]:
    """By claim (its place in a paper, its words), MPI and verdict: about what it was found."""
    found: dict[tuple[str, str], dict[str, dict[str, list[str]]]] = {}
    for path in sorted(RESULTS.glob("claims-*.csv")):
        with open(path, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                every = found.setdefault((row["where"], row["claim"]), {})
                said = every.setdefault(row["mpi"], {})
                about = said.setdefault(row["verdict"].replace(" here", ""), [])
                about.append(row["variant"].replace(" memory", ""))
    return found


def claims(_: str) -> str:
    """What the papers claim, where in them, and what was found out about it here."""
    from onesided.apps.report.claims import CLAIMS

    found = verdicts()
    places = sorted({place for every in found.values() for place in every})
    lines = [f"| {' | '.join(['paper', 'where', 'claim', *places])} |"]
    lines.append("|" + " --- |" * (3 + len(places)))
    for claim in CLAIMS:
        words = html.escape(claim.words, quote=False).replace("|", "\\|")
        here = found.get((claim.where, claim.words), {})
        cells = [_cell(here.get(place, {})) for place in places]
        lines.append(f"| {' | '.join([claim.paper.name, claim.where, words, *cells])} |")
    return "\n".join(lines)


def _cell(said: dict[str, list[str]]) -> str:
    """The verdicts of a claim; about what only where they differ."""
    if len(said) == 1:
        return next(iter(said))
    return "<br>".join(f"**{verdict}**: {'; '.join(about)}" for verdict, about in said.items())


GENERATED: dict[str, Callable[[str], str]] = {
    "results": results,
    "targets": targets,
    "calls": calls,
    "methods": methods,
    "commands": commands,
    "claims": claims,
}


def fill(text: str) -> str:
    """A page with all that is generated."""
    return MARK.sub(lambda m: GENERATED[m[1]](m[2]), text)


def tables(text: str) -> str:
    """A page with its tables as they are now."""
    return TABLE.sub(lambda m: f"{m[1]}\n{GENERATED[m[2]](m[3])}\n<!-- end -->", text)


# -- Sphinx ---------------------------------------------------------------------------------------


#: Members by which modules of the package know each other; no user calls them.
INTERNAL = frozenset("""
    alternate_in complete_at_end complete_early described direct filling give_up granted mark noun
    observe retire turn turned waiting_for compiled
    derived product promoted times transposed_rows view check_square
    marks ready_all routes
""".split())  # fmt: skip
#: Of these names some classes have others, which users call.
OPEN = ("Transport", "ExchangeTransport")


def hidden(cls: type, member: str) -> bool:
    """Whether a member of a class is none of a user's."""
    steps = member == "steps" and cls.__name__ == "DistMatrix"
    return (member in INTERNAL or steps) and cls.__name__ not in OPEN


def documented(module: str, name: str, member: str) -> bool:
    """Whether a member of a class is a user's, and has words beside its name."""
    from sphinx.errors import PycodeError
    from sphinx.pycode import ModuleAnalyzer

    found = getattr(import_module(module), name)
    if hidden(found, member):
        return False
    for base in found.__mro__:
        if not base.__module__.startswith("onesided"):
            continue
        value = inspect.unwrap(vars(base).get(member, None))
        if inspect.isroutine(value) or isinstance(value, (property, cached_property)):
            return bool(inspect.getdoc(getattr(found, member)))
        try:
            comments = ModuleAnalyzer.for_module(base.__module__).find_attr_docs()
        except PycodeError:  # of a module in C
            continue
        if (base.__name__, member) in comments:
            return True
    return False


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls it."""
    kept: dict[str, list[str]] = {}

    def read(app: Any, name: str, source: list[str]) -> None:
        source[0] = fill(source[0])

    def keep(app: Any, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
        """Napoleon takes what stands before a colon in an attribute's words for its type."""
        if what in ("attribute", "property") and not any(line.startswith("---") for line in lines):
            kept[name] = list(lines)
            lines.clear()

    def said(app: Any, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
        """Who calls it, and what it does, are one sentence: summaries take the first."""
        if name in kept:
            lines[:] = kept.pop(name)
        if lines:
            lines[0] = re.sub(r"^(Collective|Local)((?:[ ,][^.]*)?)\. ", r"*\1*\2: ", lines[0])

    def signed(app: Any, what: str, name: str, found: Any, options: Any, signature: str | None,
               returns: str | None) -> tuple[str | None, str | None]:  # fmt: skip
        """Sphinx writes an alias within a union as what it is, not by its name."""
        if signature is not None:
            signature = re.sub(r"TypeAliasForwardRef\('(.+?)'\)", r"~\1", signature)
        return signature, returns

    def skipped(
        app: Any, what: str, name: str, found: Any, skip: bool, options: Any
    ) -> bool | None:
        """What the summary of a class has not, its page has not."""
        page = app.env.docname.rpartition("/")[2].split(".")
        if len(page) < 3:
            return None
        owner = getattr(import_module(".".join(page[:-1])), page[-1])
        return True if inspect.isclass(owner) and hidden(owner, name) else None

    app.connect("source-read", read)
    app.connect("autodoc-skip-member", skipped)
    app.connect("autodoc-process-signature", signed)
    app.connect("autodoc-process-docstring", keep, priority=400)
    app.connect("autodoc-process-docstring", said, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(tables(text), encoding="utf-8")
