"""What was measured: costs of methods, and the file that keeps them by machine and situation."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mpi4py import MPI

from onesided.collectives.agreement import from_root
from onesided.collectives.errors import PatternError
from onesided.collectives.hardware import kept_file, processor, replace_file

#: Environment variable with the file to use in place of the default one, or "off".
VARIABLE = "ONESIDED_TUNING"
FORMAT = "onesided tuning"
VERSION = 2


@dataclass(frozen=True)
class Cost:
    """Seconds of initializing and freeing a request, and of one round; of the slowest rank.

    ``least`` is the shortest time of a round that was seen, 0 where that is not known.
    """

    setup: float
    round: float
    least: float = 0.0

    def of(self, iterations: int) -> float:
        """Seconds of so many rounds with the set-up (equation 1); of a round alone for 0."""
        return self.setup + iterations * self.round if iterations else self.round


@dataclass(frozen=True)
class Record:
    """Costs by method, and why others do not work here.

    ``times`` is how often they have been measured: what production contradicts is measured again.
    """

    costs: Mapping[str, Cost]
    refused: Mapping[str, str]
    times: int = 1

    def covers(self, names: Iterable[str]) -> bool:
        """Local. True where something is known of every one of these methods."""
        return all(name in self.costs or name in self.refused for name in names)

    def ranking(self, names: Iterable[str], iterations: int = 0) -> list[str]:
        """Local. The methods that may work, the best first; last those that were not measured."""
        able = [name for name in names if name not in self.refused]

        def cost(name: str) -> float:
            known = self.costs.get(name)
            return math.inf if known is None else known.of(iterations)

        return sorted(able, key=cost)

    def as_json(self) -> dict[str, Any]:
        """Local. For the file."""
        costs = {name: [cost.setup, cost.round, cost.least] for name, cost in self.costs.items()}
        return {"seconds": costs, "refused": dict(self.refused), "times": self.times}

    @classmethod
    def from_json(cls, content: Any) -> Record:
        """Local. Raises :class:`PatternError` for anything that :meth:`as_json` did not make."""
        try:
            costs = {
                str(name): Cost(float(setup), float(seconds), float(least))
                for name, (setup, seconds, least) in content["seconds"].items()
            }
            refused = {str(name): str(reason) for name, reason in content["refused"].items()}
            times = int(content["times"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise PatternError(f"no costs of methods: {error}") from error
        for name, cost in costs.items():
            values = (cost.setup, cost.round, cost.least)
            if not all(math.isfinite(value) and value >= 0 for value in values):
                raise PatternError(f"the costs of {name} are {values} s")
        return cls(costs, refused, times)


@cache
def machine() -> str:
    """Local. Processor, MPI library, thread level and version of this package."""
    library = MPI.Get_library_version().splitlines()[0].split(",")[0].strip("\x00 ")
    try:
        package = version("onesided")
    except PackageNotFoundError:
        package = "of the sources"
    return f"{processor()}; {library}; thread level {MPI.Query_thread()}; onesided {package}"


#: Machine -> situation -> record.
Records = dict[str, dict[str, Record]]


class Tuning:
    """Local. The records of one file, read when first asked for.

    Several processes may use the file: each replaces it as a whole, and adds to what is in it by
    then. What is no tuning file, or one of another version, is ignored with a warning; the former
    is replaced when something is learnt, the latter stays as it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: Records | None = None
        self._foreign = False

    def recall(self, machine: str, situation: str) -> Record | None:
        """Local. What is known."""
        return self.records().get(machine, {}).get(situation)

    def records(self) -> Records:
        """Local. All that is known."""
        if self._records is None:
            self._records = self._read()
        return self._records

    def learn(self, machine: str, situation: str, record: Record) -> None:
        """Local. Keep a record. A file that cannot be written is a warning."""
        merged = self._read() if self._records is not None else self.records()
        for section, known in self.records().items():
            merged.setdefault(section, {}).update(known)
        merged.setdefault(machine, {})[situation] = record
        self._records = merged
        if self._foreign:
            return
        try:
            replace_file(self.path, _as_json(merged))
        except OSError as error:
            _warn(f"what was measured is not kept: {error}")

    def doubt(self, machine: str, situation: str) -> None:
        """Local. Production contradicts a record: it is to be measured again."""
        known = self.recall(machine, situation)
        if known is not None and known.costs:
            self.learn(machine, situation, Record({}, known.refused, known.times))

    def forget(self) -> None:
        """Local. Drop all records and remove the file, whatever is in it."""
        self._records, self._foreign = {}, False
        self.path.unlink(missing_ok=True)

    def _read(self) -> Records:
        try:
            return read_records(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OtherVersionError as error:
            self._foreign = True
            _warn(f"{error}; it is ignored")
        except (OSError, PatternError) as error:
            _warn(f"{error}; it is ignored")
        return {}


class OtherVersionError(PatternError):
    """A tuning file that another version of this package has written."""


def open_tuning() -> Tuning | None:
    """Local. The file that the environment variable ``ONESIDED_TUNING`` names, none if "off".

    Without the variable: ``onesided/tuning.json`` in the user's cache directory.
    """
    path = kept_file(VARIABLE, "tuning.json")
    return None if path is None else _tuning_at(path)


def recall(comm: MPI.Intracomm, situation: str) -> Record | None:
    """Collective. What the file of rank 0 says of a situation on this machine."""

    def known() -> Record | None:
        tuning = open_tuning()
        return None if tuning is None else tuning.recall(machine(), situation)

    found: Record | None = from_root(comm, known)  # a warning may have been made an error
    return found


def learn(comm: MPI.Intracomm, situation: str, record: Record) -> None:
    """Collective. Keep a record in the file of rank 0."""

    def keep() -> None:
        tuning = open_tuning()
        if tuning is not None:
            tuning.learn(machine(), situation, record)

    from_root(comm, keep)  # a warning may have been made an error


def size(number: float) -> str:
    """Local. A number rounded to a half power of two, for the words of a situation."""
    return "0" if number <= 0 else f"2^{round(2 * math.log2(number)) / 2:g}"


def read_records(path: Path) -> Records:
    """Local. The records in a file; raises :class:`PatternError` where it is no tuning file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PatternError(f"{path} is no tuning file: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise PatternError(f"{path} is no tuning file: its format is not {FORMAT!r}")
    if content.get("version") != VERSION:
        version = content.get("version")
        raise OtherVersionError(f"{path} is a tuning file of version {version!r}, not {VERSION}")
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


@cache
def _tuning_at(path: Path) -> Tuning:
    """The records of a file, one object for the process."""
    return Tuning(path)
