"""What a command wrote into a JSON file, read back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.report import SCHEMA
from onesided.apps.cli.statistics import Interval, paired

#: What every envelope has, and of which type it is.
PARTS: Mapping[str, type] = {
    "command": str,
    "settings": dict,
    "versions": dict,
}
#: What an envelope may have beside lists of records of its own.
OTHERS: Mapping[str, type] = {
    "machine": dict,
    "circumstances": dict,
    "pattern": dict,
    "rows": list,
    "remarks": list,
    "verdicts": dict,
}
METHOD = "method"
#: The ways of mini-applications are compared with this one.
REFERENCE = "two-sided"
#: What names of overheads of mini-applications end with, beside the overhead itself.
DEVIATION, SECONDS = " deviation", " s"


def known(value: Any) -> float | None:
    """Local. A finite number of a JSON file; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True)
class Entry:
    """A row: its labels, and everything else by name."""

    labels: Mapping[str, str]
    values: Mapping[str, Any]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Entry:
        """Local. Of a record as :class:`onesided.apps.cli.report.Row` writes it.

        Others have no ``labels``: their texts are taken for these.
        """
        labels = record.get("labels")
        if not isinstance(labels, dict):
            labels = {
                name: value
                for name, value in record.items()
                if isinstance(value, str) and name not in ("reason", "break_even")
            }
        return cls({str(name): str(text) for name, text in labels.items()}, record)

    def number(self, name: str) -> float | None:
        """Local. A finite number, or None where there is none: of a label also as it was meant."""
        if name in self.values:
            return known(self.values[name])
        try:
            return known(float(self.labels[name]))
        except (KeyError, ValueError):
            return None

    def ratio(self, name: str) -> float | None:
        """Local. The time over that of another, taken in the same rounds."""
        ratios = self.values.get("ratios")
        return known(ratios.get(name)) if isinstance(ratios, dict) else None

    def interval(self, name: str) -> Interval | None:
        """Local. The same, and how sure it is."""
        middle, ends = self.ratio(name), self.values.get("intervals")
        found = ends.get(name) if isinstance(ends, dict) else None
        if middle is None or not isinstance(found, list) or len(found) != 2:
            return None
        low, high = known(found[0]), known(found[1])
        return None if low is None or high is None else Interval(middle, low, high)

    @property
    def times(self) -> list[float]:
        """Local. Seconds of iterations, of many only some."""
        found = self.values.get("times_s")
        every = map(known, found) if isinstance(found, list) else ()
        return [time for time in every if time is not None and time > 0]

    def beside(self, other: Entry) -> Interval | None:
        """Local. The time over that of another in the same rounds; None where one is missing."""
        mine, theirs = self.times, other.times
        if not mine or not theirs:
            return None
        if self.values.get("times_step") != other.values.get("times_step"):
            return Interval.quotient(mine, theirs)
        return Interval.of(paired(mine, theirs))

    def against(self, other: Entry) -> Interval | None:
        """Local. The same where the other was measured in rounds of its own."""
        mine, theirs = self.times, other.times
        return Interval.quotient(mine, theirs) if mine and theirs else None

    def label(self, name: str) -> str:
        """Local. A label, or an empty text."""
        return self.labels.get(name, "")

    @property
    def method(self) -> str:
        """Local. The name of the method; of ``auto (p2p)`` the whole text."""
        return self.label(METHOD)

    @property
    def median(self) -> float | None:
        """Local. Seconds of an iteration."""
        return self.number("median_s")

    @property
    def reason(self) -> str:
        """Local. Why nothing was measured; empty where something was."""
        return str(self.values.get("reason", ""))


class Result:
    """An envelope: ``name`` is that of its file, ``content`` what it holds.

    ``settings``: what the ``command`` was given, ``pattern``: what was exchanged, ``machine``:
    where it was measured, empty for what is no measurement, ``versions``: with which software.
    """

    def __init__(self, name: str, content: Mapping[str, Any]) -> None:
        """Local. :class:`CommandError` for another version, and for parts of a wrong type."""
        version = content.get("schema")
        if version != SCHEMA or isinstance(version, bool):
            told = "no version" if version is None else f"version {version!r}"
            raise CommandError(
                f"{name}: the file has {told} of what commands write, this program reads "
                f"version {SCHEMA}; measure again"
            )
        whole = {part: kind() for part, kind in OTHERS.items()} | dict(content)
        for part, kind in {**PARTS, **OTHERS}.items():
            if not isinstance(whole.get(part), kind):
                raise CommandError(f"{name}: {part!r} is no {_WORDS[kind]}")
        if not all(isinstance(row, dict) for row in whole["rows"]):
            raise CommandError(f"{name}: a row is no {_WORDS[dict]}")
        self.name, self.content = name, content
        self.command: str = whole["command"]
        self.settings: Mapping[str, Any] = whole["settings"]
        self.versions: Mapping[str, Any] = whole["versions"]
        self.pattern: Mapping[str, Any] = whole["pattern"]
        self.machine: Mapping[str, Any] = whole["machine"]
        self.entries = [Entry.of(row) for row in whole["rows"]]
        self.date = str(whole["circumstances"].get("date", ""))  # in a form that sorts
        self.remarks = [str(remark) for remark in whole["remarks"]]

    @property
    def timed(self) -> list[Entry]:
        """Local. The rows of what was timed."""
        return [entry for entry in self.entries if entry.median is not None]

    @property
    def listings(self) -> dict[str, Sequence[Mapping[str, Any]]]:
        """Local. Lists of records beside the rows, by name."""
        return {
            name: value
            for name, value in self.content.items()
            if name not in OTHERS
            and isinstance(value, list)
            and value
            and all(isinstance(record, dict) for record in value)
        }

    @property
    def layout(self) -> str:
        """Local. Ranks and nodes in words."""
        if not self.machine:
            return "no measurement"
        ranks, nodes = self.machine.get("ranks", "?"), self.machine.get("nodes", "?")
        return f"{ranks} rank{'' if ranks == 1 else 's'} on {nodes} node{'' if nodes == 1 else 's'}"

    @property
    def place(self) -> tuple[str, str, str]:
        """Local. Machine and MPI: what must not differ between results that are compared."""
        return (
            str(self.machine.get("system", "unknown system")),
            str(self.machine.get("processor", "unknown processor")),
            str(self.versions.get("mpi library", "unknown MPI")),
        )


_WORDS: dict[type, str] = {str: "text", dict: "object", list: "list"}
