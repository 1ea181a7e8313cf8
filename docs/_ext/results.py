"""What the tables of docs/performance.md say, from files that commands wrote.

``results.py FOLDER ONESIDED...`` runs the commands of docs/results/tables.toml, with the
``onesided`` of each MPI, on two ranks into files of the folder; what is there is not measured
again. Then it writes the tables, with the bounds of ``onesided bench check``, into docs/results,
from where pages.py puts them on the page.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from onesided.apps.report.command import load
from onesided.apps.report.compare import held
from onesided.apps.report.result import Entry, Result

TABLES = Path(__file__).resolve().parent.parent / "results"
#: By the name of a folder, how the MPI's name begins.
MPIS = {"mpich": "MPICH", "openmpi": "Open MPI"}


def measure(folder: Path, programs: Sequence[str], commands: Mapping[str, str]) -> None:
    """Run what is not there; ``programs`` in the order of :data:`MPIS`."""
    for mpi, program in zip(MPIS, programs, strict=False):
        (folder / mpi).mkdir(parents=True, exist_ok=True)
        for name, words in commands.items():
            file = folder / mpi / f"{name}.json"
            if not file.exists():
                line = [program, *words.split(), "--ranks", "2", "--json", str(file)]
                print(" ".join(line), flush=True)
                subprocess.run(line, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


def cells_of(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the columns of a table say."""
    given = table["columns"]
    count = len(next(iter(value for value in given.values() if isinstance(value, list))))
    found: list[dict[str, Any]] = []
    for k in range(count):
        column: dict[str, Any] = {"labels": {}}
        if "texts" in given:
            column = {"name": given["texts"][k], "labels": {given["label"]: given["texts"][k]}}
        if "names" in given:
            column["name"] = given["names"][k]
        column |= {key: given[key][k] for key in ("against", "faster") if key in given}
        found.append(column | ({"file": given["files"][k]} if "files" in given else {}))
    return found + ([table["more"]] if "more" in table else [])


def lines_of(table: Mapping[str, Any], results: Mapping[str, Result]) -> Iterator[dict[str, Any]]:
    """What the lines of a table say."""
    if "each" not in table:
        yield from table["lines"]
        return
    name = table["each"]
    for text in dict.fromkeys(entry.label(name) for entry in results[table["file"]].timed):
        yield {"name": table.get("renamed", {}).get(text, text), "labels": {name: text}}


def entry_of(spec: Mapping[str, Any], results: Mapping[str, Result]) -> Entry | None:
    """The row of a result that a cell is about."""
    labels = {
        name: spec.get("threads", text) if text == "threads" else text
        for name, text in spec["labels"].items()
    }
    if labels.get("operation") == "Barrier":  # has no bytes: it stands in the first column
        labels["bytes"] = "0 B" if labels.get("bytes") == "8 B" else "none"
    for entry in results[spec["file"]].timed:
        if all(entry.label(name) == text for name, text in labels.items()):
            return entry
    return None


def cell(spec: Mapping[str, Any], results: Mapping[str, Result]) -> tuple[str, str]:
    """A number, and what is wanted; empty where there is none."""
    entry = entry_of(spec, results)
    if entry is None:
        return "", ""
    if "number" in spec:
        return f"{(entry.number(spec['number']) or 0.0) / spec['unit']:.3g}", ""
    value = entry.ratio(spec["against"])
    if value is None:
        return "", ""
    wanted = [
        target["at_most"] for target, other, _ in held(results[spec["file"]])
        if other is entry and target.get("against") == spec["against"]
    ]  # fmt: skip
    bounds = [f"{1 / at_most:.2g}" if spec.get("faster") else f"{at_most:g}" for at_most in wanted]
    return f"{1 / value if spec.get('faster') else value:.2f}", next(iter(bounds), "")


def joined(texts: Sequence[str]) -> str:
    """Those of several MPIs; nothing where none has any."""
    return " / ".join(text or "-" for text in texts) if any(texts) else ""


def written(table: Mapping[str, Any], every: Mapping[str, Mapping[str, Result]]) -> dict[str, Any]:
    """A table as pages.py reads it."""
    names = [name for name in table.get("mpi", MPIS) if name in every]
    columns, first = cells_of(table), every[names[0]]
    rows = []
    for line in lines_of(table, first):
        found: list[list[tuple[str, str]]] = []
        for column in columns:
            labels = {**table.get("labels", {}), **line.get("labels", {}), **column["labels"]}
            spec = {**table, **line, **column, "labels": labels}
            found.append([cell(spec, every[name]) for name in names])
        wanted = [[w for _, w in each] for each in found]
        better = "higher" if table.get("faster") else "lower"
        rows.append({
            "name": line["name"], "better": better,
            "measured": [joined([here for here, _ in each]) for each in found],
            "wanted": [each[0] if len(set(each)) == 1 else joined(each) for each in wanted],
        })  # fmt: skip
    files = {spec.get("file") for spec in (table, *table.get("lines", ()), *columns)} - {None}
    used = [every[name][file] for name in names for file in sorted(files)]
    machine, date = used[0].machine, min(result.date for result in used)[:10]
    commands = [f"onesided {table['commands'][file]} --ranks 2" for file in sorted(files)]
    return {
        "title": table["title"],
        "command": "; ".join(commands),
        "measured_on": f"{used[0].layout}, {machine['all_cores']} cores of {machine['processor']}, "
                       f"OMP_NUM_THREADS=1; {date}",
        "contestants": list(dict.fromkeys(str(each.versions["mpi library"]) for each in used)),
        "better": "higher" if table.get("faster") else "lower",
        "columns": [column["name"] for column in columns], "rows": rows,
    }  # fmt: skip


def main(folder: Path, programs: Sequence[str]) -> None:
    """Measure, and write the tables."""
    given = tomllib.loads((TABLES / "tables.toml").read_text(encoding="utf-8"))
    measure(folder, programs, given["commands"])
    every: dict[str, dict[str, Result]] = {}
    for mpi in MPIS:
        found = {name: load(folder / mpi / f"{name}.json") for name in given["commands"]
                 if (folder / mpi / f"{name}.json").exists()}  # fmt: skip
        if found:
            every[mpi] = {name: result for name, result in found.items() if result is not None}
    by_name = {table["name"]: table for table in given["table"]}
    for table in given["table"]:
        whole = {**by_name.get(table.get("like", ""), {}), **table, "commands": given["commands"]}
        text = json.dumps(written(whole, every), indent=1, ensure_ascii=False)
        (TABLES / f"{table['name']}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
