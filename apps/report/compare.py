"""``onesided bench compare OLD NEW``, and ``bench check DIR``: results against others, or targets.

Both read what commands wrote with ``--json``. Two files are of different runs, so that their times
are no pairs: a ratio of medians has the interval of both.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from mpi4py import MPI

from onesided.apps.cli.failures import FAILED, CommandError, from_rank_0
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console
from onesided.apps.cli.report import BYTES, duration, plain_table, print_wide, shown
from onesided.apps.cli.statistics import Interval
from onesided.apps.report.command import load, results_of
from onesided.apps.report.result import Entry, Result, part


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command ``bench compare``; 1 where the new run is wrong, or surely slower."""
    return from_rank_0(comm, lambda: _compare(options))


def _compare(options: Any) -> int:
    old, new = (_read(path) for path in (options.old, options.new))
    if old.command != new.command:
        raise CommandError(f"{old.name} is of {old.command}, {new.name} of {new.command}")
    for what, (one, two) in _differing(old, new).items():
        print(f"{what}: {one} in {old.name}, {two} in {new.name}", flush=True)
    for result in (old, new):
        for what in _wrong(result):
            print(f"wrong in {result.name}: {what}", flush=True)
    before = {tuple(sorted(e.labels.items())): e for e in old.timed if e.right}
    cells, failed = [], len(_wrong(new))
    after = {tuple(sorted(e.labels.items())): e for e in new.entries}
    for key, other in before.items():
        entry = after.get(key)
        if entry is None or entry.median is None:
            reason = "no such row" if entry is None else entry.reason
            print(f"not in {new.name}: {' '.join(other.labels.values())}: {reason}", flush=True)
            continue
        if not entry.times or not other.times:
            continue
        ratio = Interval.quotient(entry.times, other.times)
        bad = ratio.known and ratio.low > options.threshold
        failed += bad
        cells.append({
            **entry.labels, "old": duration(other.median or 0.0),
            "new": duration(entry.median or 0.0), "new / old": str(ratio),
            "": "SLOWER" if bad and entry.right else "" if entry.right else "WRONG",
        })  # fmt: skip
    if not cells:
        raise CommandError(f"{old.name} and {new.name} have no rows with the same labels")
    columns = list(dict.fromkeys(name for row in cells for name in row))
    labels = [name for name in columns if name not in ("old", "new", "new / old", "")]
    title = f"{new.command}: {new.name} over {old.name}"
    print_wide(console(), plain_table(title, columns, cells, labels))
    return FAILED if failed else 0


def _wrong(result: Result) -> list[str]:
    """Local. The rows with wrong data, and what else the command found wrong."""
    verdicts = part(result.content, "verdicts")
    return [
        *(" ".join(e.labels.values()) for e in result.timed if not e.right),
        *(what for what in verdicts if part(verdicts, what).get("verified") is False),
    ]


#: What may differ between two runs of one problem.
HOW_LONG = ("seconds", "iterations", "repeats")


def _differing(old: Result, new: Result) -> dict[str, tuple[Any, Any]]:
    """Local. Settings, and where it was measured, that two results do not have in common."""
    of_both = [
        {**result.settings, "ran as": result.layout, "on": ", ".join(result.place)}
        for result in (old, new)
    ]
    names = [name for name in dict.fromkeys([*of_both[0], *of_both[1]]) if name not in HOW_LONG]
    pairs = {name: (of_both[0].get(name), of_both[1].get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _read(path: str) -> Result:
    found = load(Path(path))
    if found is None:
        raise CommandError(f"{path}: no result of a command")
    return found


# -- targets --------------------------------------------------------------------------------------

UNOPPOSED = "opponent WRONG"  # what a row is to be compared with was timed with wrong data


def run_check(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command ``bench check``; 1 where a target is missed, or a row that is needed
    could not be measured. An opponent with wrong data is none, and nobody's miss."""
    return from_rank_0(comm, lambda: _check(options))


def _check(options: Any) -> int:
    results, _ = results_of(options.folder)
    cells: list[dict[str, str]] = []
    for result in results:
        for target, entry, value in held(result):
            most, here, outcome = target["at_most"], "", "not measured"
            if value is not None:
                met = entry.right and value.median <= most
                sure = value.known and (value.low <= most) == (value.high <= most)
                here = str(value) if "against" in target else shown("_s", value.median)
                outcome = ("met" if met else "MISSED") + ("" if sure else "?")
            elif entry.right and any(each.median for each in _lost(result, entry, target)):
                outcome = UNOPPOSED
            cells.append({
                "command": result.command, "row": " ".join(entry.labels.values()),
                "against": target.get("against", target.get("metric")),
                "here": here, "at most": f"{most:g}", "": outcome,
            })  # fmt: skip
    if not cells:
        print("no targets are set for these results", flush=True)
        return 0
    columns = list(cells[0])
    print_wide(console(), plain_table("", columns, cells, columns[:3]))
    outcomes = [cell[""] for cell in cells]
    reached = sum(outcome.startswith("met") for outcome in outcomes)
    print(f"{reached} of {len(cells)} targets reached", flush=True)
    return FAILED if reached + outcomes.count(UNOPPOSED) < len(cells) else 0


def held(result: Result) -> Iterator[tuple[Mapping[str, Any], Entry, Interval | None]]:
    """Local. The targets, the rows that each is about, and what is held against it; None where that
    row, or the opponent's, could not be measured, or the opponent's data were wrong."""
    text = (files("onesided.apps") / "data" / "targets.toml").read_text(encoding="utf-8")
    vendor = str(result.versions.get("mpi library", ""))
    for target in tomllib.loads(text)["target"]:
        mine = target["command"] == result.command and vendor.startswith(target.get("mpi", ""))
        ranks = result.machine.get("ranks"), result.machine.get("nodes")
        if mine and ranks == (target.get("ranks", 2), 1):
            for entry in result.entries:
                inside = target.get("least", 0) <= _size(entry) <= target.get("most", 1 << 62)
                if inside and entry.has(target.get("labels", {})):
                    value = _value(entry, target)
                    if value is not None or entry.reason or _lost(result, entry, target):
                        yield target, entry, value


def _lost(result: Result, entry: Entry, target: Mapping[str, Any]) -> list[Entry]:
    """Local. What a row is to be compared with, where that was refused or wrong."""
    own = ("method", "memory", "order", "aggregate")
    case = {name: text for name, text in entry.labels.items() if name not in own}
    opponents = [each for each in result.entries if not each.right and each.has(case)]
    return [e for e in opponents if f"{e.method} ".startswith(f"{target.get('against')} ")]


def _size(entry: Entry) -> float:
    """Local. The bytes that a row moves; its label tells them where it was not measured."""
    number, _, unit = entry.label("bytes").partition(" ")
    if not entry.reason or not number:
        return entry.number("bytes") or 0.0
    return float(number) * {name: factor for factor, name in BYTES}.get(unit, 1)


def _value(entry: Entry, target: Mapping[str, Any]) -> Interval | None:
    """Local. What a target bounds of a row; None where it has nothing of it."""
    if "against" in target:
        return entry.interval(target["against"])
    seconds = entry.number(target["metric"])
    return None if seconds is None else Interval(seconds)
