"""The file of what was measured: costs of methods by machine and situation."""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from onesided.collectives.errors import PatternError
from onesided.collectives.keeping import kept_file, replace_file
from onesided.collectives.tuning.record import Record

#: Environment variable with the file to use in place of the default one, or "off".
VARIABLE = "ONESIDED_TUNING"
FORMAT = "onesided tuning"
VERSION = 1

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
