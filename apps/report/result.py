"""What a command wrote into a JSON file, read back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.report import METHOD, SCHEMA
from onesided.apps.cli.statistics import Interval, paired

#: What every envelope has, and of which type it is.
PARTS: Mapping[str, type] = {"command": str, "settings": dict, "versions": dict}
#: What an envelope may have beside lists of records of its own.
OTHERS: Mapping[str, type] = {
    "machine": dict, "circumstances": dict, "pattern": dict, "rows": list, "remarks": list,
    "verdicts": dict,
}  # fmt: skip
WORDS: Mapping[type, str] = {str: "text", dict: "object", list: "list"}


def known(value: Any) -> float | None:
    """Local. A finite number of a JSON file; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Local. An object in another one; empty where there is none."""
    found = values.get(name)
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class Entry:
    """A row as :class:`onesided.apps.cli.report.Row` writes it; ``file``: that it comes from."""

    values: Mapping[str, Any]
    file: str

    @cached_property
    def labels(self) -> Mapping[str, str]:
        return {str(name): str(text) for name, text in part(self.values, "labels").items()}

    def number(self, name: str) -> float | None:
        """A finite number, or None where there is none: of a label also as it was meant."""
        for values in (self.values, part(self.values, "metrics")):
            if name in values:
                return known(values[name])
        try:
            return known(float(self.labels[name]))
        except (KeyError, ValueError):
            return None

    def ratio(self, name: str) -> float | None:
        """The time over that of another, taken in the same rounds."""
        return known(part(self.values, "ratios").get(name))

    def interval(self, name: str) -> Interval | None:
        """The same, and how sure it is."""
        middle, ends = self.ratio(name), part(self.values, "intervals").get(name)
        if middle is None:
            return None
        low, high = map(known, ends) if isinstance(ends, list) and len(ends) == 2 else (None, None)
        return Interval(middle) if low is None or high is None else Interval(middle, low, high)

    @property
    def times(self) -> list[float]:
        """Seconds of iterations, of many only some."""
        found = self.values.get("times_s")
        every = map(known, found) if isinstance(found, list) else ()
        return [time for time in every if time is not None and time > 0]

    def over(self, other: Entry) -> Interval | None:
        """The time over that of another: by rounds, where both are of one case of one file and
        took part in the same; None where one is missing."""
        near = self.file == other.file and self.case == other.case != ""
        mine, theirs = self.times, other.times
        if not mine or not theirs:
            return None
        same = self.values.get("times_step") == other.values.get("times_step")
        if near and same and len(mine) == len(theirs):
            return Interval.of(paired(mine, theirs))
        return Interval.quotient(mine, theirs)

    @property
    def case(self) -> str:
        """The name that all have who took turns with this one; empty where that is not known."""
        return str(self.values.get("case", ""))

    def label(self, name: str) -> str:
        return self.labels.get(name, "")

    def has(self, labels: Mapping[str, str | Sequence[str]]) -> bool:
        """Whether it has these labels, each of them with a text, or with one of several."""
        return all(
            self.label(name) in ([texts] if isinstance(texts, str) else texts)
            for name, texts in labels.items()
        )

    @property
    def method(self) -> str:
        return self.label(METHOD)

    @property
    def median(self) -> float | None:
        """Seconds of an iteration."""
        return known(self.values.get("median_s"))

    @property
    def reason(self) -> str:
        """Why nothing was measured; empty where something was."""
        return str(self.values.get("reason", ""))

    @property
    def right(self) -> bool:
        """Whether it was timed, and its data were not found wrong, by an MPI's own call neither."""
        wrong = "wrong partitions" in part(self.values, "metrics")
        return self.median is not None and self.values.get("verified") is not False and not wrong


@dataclass
class Result:
    """An envelope: ``name`` is that of its file, ``content`` what it holds.

    ``settings``: what the ``command`` was given, ``pattern``: what was exchanged, ``machine``:
    where it was measured, ``versions``: with which software.
    """

    name: str
    content: Mapping[str, Any]
    command: str = field(init=False)
    entries: list[Entry] = field(init=False)

    def __post_init__(self) -> None:
        """:class:`CommandError` for another version, and for parts of a wrong type."""
        version = self.content.get("schema")
        if version != SCHEMA or isinstance(version, bool):
            told = "no version" if version is None else f"version {version!r}"
            raise CommandError(
                f"{self.name}: the file has {told} of what commands write, this program reads "
                f"version {SCHEMA}; measure again"
            )
        whole = {name: kind() for name, kind in OTHERS.items()} | dict(self.content)
        for name, kind in {**PARTS, **OTHERS}.items():
            if not isinstance(whole.get(name), kind):
                raise CommandError(f"{self.name}: {name!r} is no {WORDS[kind]}")
        if not all(isinstance(row, dict) for row in whole["rows"]):
            raise CommandError(f"{self.name}: a row is no {WORDS[dict]}")
        self.command = whole["command"]
        self.settings: Mapping[str, Any] = whole["settings"]
        self.versions: Mapping[str, Any] = whole["versions"]
        self.pattern: Mapping[str, Any] = whole["pattern"]
        self.machine: Mapping[str, Any] = whole["machine"]
        self.entries = [Entry(row, self.name) for row in whole["rows"]]
        self.date = str(whole["circumstances"].get("date", ""))  # in a form that sorts
        self.remarks = [str(remark) for remark in whole["remarks"]]

    @property
    def timed(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.median is not None]

    @property
    def listings(self) -> dict[str, Sequence[Mapping[str, Any]]]:
        """Lists of records beside the rows, by name."""
        return {
            name: value for name, value in self.content.items()
            if name not in OTHERS and isinstance(value, list) and value
            and all(isinstance(record, dict) for record in value)
        }  # fmt: skip

    @property
    def layout(self) -> str:
        """Ranks and nodes in words."""
        if not self.machine:
            return "no measurement"
        ranks, nodes = self.machine.get("ranks", "?"), self.machine.get("nodes", "?")
        return f"{ranks} rank{'' if ranks == 1 else 's'} on {nodes} node{'' if nodes == 1 else 's'}"

    @property
    def place(self) -> tuple[str, str, str]:
        """Machine and MPI: what must not differ between results that are compared."""
        system, processor = (
            str(self.machine.get(name, f"unknown {name}")) for name in ("system", "processor"))
        return system, processor, str(self.versions.get("mpi library", "unknown MPI"))
