"""Writes the tables of the pages: each stands between ``<!-- table: KIND WORDS -->`` and an end.

``write_tables.py`` writes those of methods, of counted calls and of claims. ``write_tables.py
FOLDER ONESIDED...`` writes those of measurements as well: it runs the commands of tables.toml, with
the ``onesided`` of each MPI, on two ranks into files of the folder, but measures nothing again that
is there. The bounds are those of ``onesided bench check``.
"""

from __future__ import annotations

import csv
import html
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onesided import collectives
from onesided.apps.report.command import load
from onesided.apps.report.compare import held
from onesided.apps.report.result import Result

HERE = Path(__file__).resolve().parent
TABLE = re.compile(r"^(<!-- table: (\w+) ?(.*?) -->)\n(.*?)^<!-- end -->$", re.M | re.S)
GIVEN = tomllib.loads((HERE / "tables.toml").read_text(encoding="utf-8"))
MPIS = ("mpich", "openmpi")  # in this order their programs are given
#: By MPI and name of a command.
Results = Mapping[str, Mapping[str, Result]]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: str = "---") -> str:
    lines = [head, ["---", *[numbers] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# -- measurements ---------------------------------------------------------------------------------


def measured(folder: Path, programs: Sequence[str]) -> Results:
    """The results of the folder, once what is not there has been measured."""
    found: dict[str, dict[str, Any]] = {}
    for mpi, program in zip(MPIS, programs, strict=False):
        (folder / mpi).mkdir(parents=True, exist_ok=True)
        for name, words in GIVEN["commands"].items():
            file = folder / mpi / f"{name}.json"
            if not file.exists():
                line = [program, *words.split(), "--ranks", "2", "--json", str(file)]
                print(" ".join(line), flush=True)
                subprocess.run(line, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
            found.setdefault(mpi, {})[name] = load(file)
    return found


def cell(spec: Mapping[str, Any], results: Mapping[str, Result]) -> tuple[str, str]:
    """A number, and what is wanted; empty where there is none."""
    result = results[spec["file"]]
    entry = next((each for each in result.timed if each.has(spec["labels"])), None)
    if entry is not None and "number" in spec:
        return f"{(entry.number(spec['number']) or 0.0) / spec['unit']:.3g}", ""
    value = entry.ratio(spec["against"]) if entry is not None else None
    if value is None:
        return "", ""
    wanted = [target["at_most"] for target, other, _ in held(result)
              if other is entry and target.get("against") == spec["against"]]  # fmt: skip
    if spec.get("faster"):
        return f"{1 / value:.2f}", f"{1 / wanted[0]:.2g}" if wanted else ""
    return f"{value:.2f}", f"{wanted[0]:g}" if wanted else ""


def joined(texts: Sequence[str]) -> str:
    """Those of several MPIs; nothing where none has any."""
    return " / ".join(text or "-" for text in texts) if any(texts) else ""


def shown(cells: Sequence[tuple[str, str]], faster: bool, targets: bool) -> str:
    """The cells of all MPIs as one; bold where one of them misses its target."""
    here, wanted = joined([here for here, _ in cells]), [bound for _, bound in cells]
    if not (targets and here and any(wanted)):
        return here
    bounds = wanted[0] if len(set(wanted)) == 1 else joined(wanted)
    pairs = [(float(a), float(b)) for a, b in cells if a and b]
    missed = any(a < b if faster else a > b for a, b in pairs)
    return f"**{here}** ({bounds})" if missed else f"{here} ({bounds})"


def specs(given: Sequence[Any], label: str) -> list[Mapping[str, Any]]:
    """Lines or columns; a text alone is name and label."""
    return [{"name": each, "labels": {label: each}} if isinstance(each, str) else each
            for each in given]  # fmt: skip


def results(every: Results, name: str, mpi: str = "", targets: bool = False) -> str:
    """A table, and below it what it is, from where, and how to repeat it."""
    table = GIVEN["table"][name]
    columns, lines = (specs(table[each], table.get(by, ""))
                      for each, by in (("columns", "across"), ("lines", "down")))  # fmt: skip
    chosen = [found for each, found in every.items() if mpi in ("", each)]
    rows, files = [], set()
    for line in lines:
        cells = [line["name"]]
        for column in columns:
            spec = {**table, **line, **column}
            spec["labels"] = {key: text for each in (table, line, column)
                              for key, text in each.get("labels", {}).items()}  # fmt: skip
            files.add(spec["file"])
            found = [cell(spec, each) for each in chosen]
            cells.append(shown(found, bool(spec.get("faster")), targets))
        rows.append(cells)
    used = [each[file] for each in chosen for file in sorted(files)]
    mpis = dict.fromkeys(str(each.versions["mpi library"]) for each in used)
    text = markdown([" / ".join(mpis), *(each["name"] for each in columns)], rows, "--:")
    if targets:
        bounded = [each for cells in rows for each in cells[1:] if "(" in each]
        note = f"In brackets what is wanted; {sum('**' in each for each in bounded)} of "
        return f"{text}\n\n{table['title']}. {note}{len(bounded)} cells miss it, in bold."
    machine, date = used[0].machine, min(each.date for each in used)[:10]
    commands = "; ".join(f"onesided {GIVEN['commands'][each]} --ranks 2" for each in sorted(files))
    return (
        f"{text}\n\n{table['title']}. {used[0].layout}, {machine['all_cores']} cores of "
        f"{machine['processor']}, OMP_NUM_THREADS=1; {date}. Repeat it: `{commands}`."
    )


# -- what needs no measurement --------------------------------------------------------------------


def methods(operation: str) -> str:
    """The methods of an operation, from the registry."""
    rows = [[f"`{name}`", method.summary, "yes" if method.any_order else "no",
             "yes" if method.candidate else ""]
            for name, method in collectives.methods(operation).items()]  # fmt: skip
    return markdown(["method", "how it moves data", "any order", "`auto` considers it"], rows)


def calls() -> str:
    """Of what every call costs: messages and bytes, of set-ups and of what is repeated with any."""
    lines = (HERE / "calls.txt").read_text(encoding="utf-8").splitlines()
    head, _, *rows = [[text.strip() for text in line.strip("|").split("|")] for line in lines]
    once = re.compile(r"first|Free|destroy|free|8 iterations")
    chosen = [row for row in rows if not once.search(row[0]) and row[3] != "0"]
    return markdown([*head[:4], head[5]], [[*row[:4], row[5]] for row in chosen])


def verdict(rows: Sequence[Mapping[str, str]]) -> str:
    """The verdicts of a claim with one MPI; about what only where they differ."""
    found: dict[str, list[str]] = {}
    for row in rows:
        about = found.setdefault(row["verdict"].replace(" here", ""), [])
        about.append(row["variant"].replace(" memory", ""))
    if len(found) == 1:
        return next(iter(found))
    return "<br>".join(f"**{said}**: {'; '.join(about)}" for said, about in found.items())


def claims() -> str:
    """What the papers claim, where in them, and what was found out about it here."""
    found: dict[tuple[str, ...], dict[str, list[dict[str, str]]]] = {}
    for mpi in MPIS:
        with open(HERE / f"claims-{mpi}.csv", encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                claim = found.setdefault((row["paper"], row["where"], row["claim"]), {})
                claim.setdefault(row["mpi"], []).append(row)
    mpis = list(dict.fromkeys(mpi for every in found.values() for mpi in every))
    rows = []
    for (paper, where, words), every in found.items():
        told = html.escape(words, quote=False).replace("|", "\\|")
        rows.append([paper, where, told, *(verdict(every.get(mpi, [])) for mpi in mpis)])
    return markdown(["paper", "where", "claim", *mpis], rows)


# -- pages ----------------------------------------------------------------------------------------


def filled(page: str, every: Results | None = None) -> str:
    """A page with its tables as they are now; those of measurements only where these are given."""
    kinds: dict[str, Callable[..., str]] = {"methods": methods, "calls": calls, "claims": claims}
    if every is not None:
        kinds["results"] = lambda *words: results(every, *words)
        kinds["targets"] = lambda name, mpi="": results(every, name, mpi, targets=True)

    def table(found: re.Match[str]) -> str:
        begin, kind, words, before = found.groups()
        made = kinds[kind](*words.split()) + "\n" if kind in kinds else before
        return f"{begin}\n{made}<!-- end -->"

    return TABLE.sub(table, page)


def read(text: str) -> dict[str, dict[str, str]]:
    """The first table of a text, by line and column."""
    found = re.search(r"(?:^\|.*\|\n)+", text, re.M)
    assert found, "no table"
    head, _, *rows = [line[2:-2].split(" | ") for line in found[0].splitlines()]
    return {name: dict(zip(head[1:], cells, strict=True)) for name, *cells in rows}


if __name__ == "__main__":
    found = measured(Path(sys.argv[1]), sys.argv[2:]) if len(sys.argv) > 1 else None
    for file in HERE.parent.rglob("*.md"):
        text = file.read_text(encoding="utf-8")
        file.write_text(filled(text, found), encoding="utf-8")
