"""What was measured: costs of methods, kept by machine and situation, in the process and a file."""

from __future__ import annotations

import contextlib
import json
import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mpi4py import MPI

from onesided.collectives.agreement import from_root
from onesided.collectives.context import Context
from onesided.collectives.errors import PatternError
from onesided.collectives.hardware import kept_file, network, processor, replace_file

#: Environment variable with the file to use in place of the default one, or "off".
VARIABLE = "ONESIDED_TUNING"
FORMAT = "onesided tuning"
VERSION = 3


@dataclass(frozen=True)
class Cost:
    """Seconds of initializing and freeing a request, and of one round; of the slowest rank."""

    setup: float
    round: float

    def of(self, iterations: int) -> float:
        """Seconds of so many rounds with the set-up (equation 1); of a round alone for 0."""
        return self.setup + iterations * self.round if iterations else self.round


@dataclass(frozen=True)
class Record:
    """Costs by method, why others do not work here (``refused``), and why others yet have not been
    tried: what they needed ran out (``passed``), which another process may have."""

    costs: Mapping[str, Cost]
    refused: Mapping[str, str]
    passed: Mapping[str, str] = field(default_factory=dict)

    def covers(self, names: Iterable[str]) -> bool:
        """Local. True where something is known of every one of these methods, and one may work."""
        known = self.costs.keys() | self.refused.keys() | self.passed.keys()
        wanted = set(names)
        return wanted <= known and not wanted <= self.refused.keys()

    def ranking(self, names: Iterable[str], iterations: int = 0) -> list[str]:
        """Local. The methods that may work, the best first; last those that were not measured."""
        able = [name for name in names if name not in self.refused]

        def cost(name: str) -> float:
            known = self.costs.get(name)
            return math.inf if known is None else known.of(iterations)

        return sorted(able, key=cost)

    def as_json(self) -> dict[str, Any]:
        costs = {name: [cost.setup, cost.round] for name, cost in self.costs.items()}
        return {"seconds": costs, "refused": dict(self.refused)}

    @classmethod
    def from_json(cls, content: Any) -> Record:
        """Local. Raises :class:`PatternError` for anything that :meth:`as_json` did not make."""
        try:
            costs = {
                str(name): Cost(float(setup), float(seconds))
                for name, (setup, seconds) in content["seconds"].items()
            }
            refused = {str(name): str(reason) for name, reason in content["refused"].items()}
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise PatternError(f"no costs of methods: {error}") from error
        for name, cost in costs.items():
            values = (cost.setup, cost.round)
            if not all(math.isfinite(value) and value >= 0 for value in values):
                raise PatternError(f"the costs of {name} are {values} s")
        return cls(costs, refused)


@cache
def machine() -> str:
    """Local. Processor, MPI library and its network, thread level and version of this package."""
    library = MPI.Get_library_version().splitlines()[0].split(",")[0].strip("\x00 ")
    try:
        package = version("onesided")
    except PackageNotFoundError:
        package = "of the sources"
    words = [processor(), library, network(), f"thread level {MPI.Query_thread()}"]
    return "; ".join([*filter(None, words), f"onesided {package}"])


#: Machine -> situation -> record.
Records = dict[str, dict[str, Record]]


class Tuning:
    """Local. The records of one file, read when first asked for, and those of this process.

    One rule tells who is right. What this process has read or measured is what it goes by to its
    end, whatever others write meanwhile: a decision does not change under a program. In the file
    the last measurement of a situation stands, whoever made it: each process replaces the file as
    a whole by what is in it at that moment and the one record that it has measured.

    A file that is not ours is refused: it is ignored with a warning, and left as it is, as is one
    of a newer version. Without a file (``path`` is None) the process still knows what it measured.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._records: Records | None = None
        self._refused = False

    def recall(self, machine: str, situation: str) -> Record | None:
        return self.records().get(machine, {}).get(situation)

    def records(self) -> Records:
        if self._records is None:
            self._records = self._read()
        return self._records

    def learn(self, machine: str, situation: str, record: Record) -> None:
        """Local. Keep a record; one that lacks what ran out is kept by this process alone. A file
        that cannot be written is a warning."""
        self.records().setdefault(machine, {})[situation] = record
        if self.path is None or self._refused or record.passed:
            return
        content = self._read()
        if self._refused:
            return
        content.setdefault(machine, {})[situation] = record
        try:
            replace_file(self.path, _as_json(content))
        except OSError as error:
            _warn(f"what was measured is not kept: {error}")

    def forget(self) -> None:
        """Local. Drop all records and remove the file; :class:`PatternError` where it is not ours,
        or of a newer version."""
        self._records = {}
        if self.path is None:
            return
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            read_records(self.path)
        self._refused = False
        self.path.unlink(missing_ok=True)

    def _read(self) -> Records:
        if self.path is None:
            return {}
        try:
            return read_records(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, PatternError) as error:
            self._refused = True
            _warn(f"{error}; it is left as it is, and nothing is kept: name another, or remove it")
        return {}


def open_tuning() -> Tuning:
    """Local. What is known, with the file that the environment variable ``ONESIDED_TUNING`` names.

    Without the variable: ``onesided/tuning.json`` in the user's cache directory; no file if "off".
    """
    return _tuning_at(kept_file(VARIABLE, "tuning.json"))


def recall(context: Context, situation: str) -> Record | None:
    """Collective until there is an answer, local afterwards. What the file of rank 0 says of a
    situation on this machine."""

    def known() -> Record | None:
        return open_tuning().recall(machine(), situation)

    if situation not in context.decided:
        found = from_root(context.comm, known)  # a warning may have been made an error
        if found is None:
            return None
        context.decided[situation] = found
    record: Record = context.decided[situation]
    return record


def learn(context: Context, situation: str, record: Record) -> None:
    """Collective. Keep a record in the file of rank 0."""

    def keep() -> None:
        open_tuning().learn(machine(), situation, record)

    context.decided[situation] = record
    from_root(context.comm, keep)  # a warning may have been made an error


def size(number: float) -> str:
    """Local. A number rounded to a half power of two, for the words of a situation."""
    return "0" if number <= 0 else f"2^{round(2 * math.log2(number)) / 2:g}"


def read_records(path: Path) -> Records:
    """Local. The records in a file; raises :class:`PatternError` where it is no tuning file, or one
    of a newer version. In an older one is nothing that can be used."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (RecursionError, ValueError) as error:
        raise PatternError(f"{path} is no tuning file: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise PatternError(f"{path} is no tuning file: its format is not {FORMAT!r}")
    number = content.get("version")
    if isinstance(number, int) and number < VERSION:
        return {}
    if number != VERSION:
        raise PatternError(f"{path} is a tuning file of version {number!r}, not {VERSION}")
    try:
        return {
            str(machine): {str(key): Record.from_json(entry) for key, entry in known.items()}
            for machine, known in content["records"].items()
        }
    except (AttributeError, KeyError, PatternError) as error:
        raise PatternError(f"{path} is no tuning file: {error}") from error


def _as_json(records: Records) -> dict[str, Any]:
    known = {
        machine: {key: record.as_json() for key, record in entries.items()}
        for machine, entries in records.items()
    }
    return {"format": FORMAT, "version": VERSION, "records": known}


def _warn(words: str) -> None:
    warnings.warn(words, RuntimeWarning, stacklevel=4)


#: The records of a file, or of none, one object for the process.
_tuning_at = cache(Tuning)
