"""The file of what was measured: a line for every part, written as soon as it is there.

A benchmark with ``--json FILE`` keeps its parts beside that file until all are there, and goes on
with them where it is called again with the same options. A line that was cut off is as if it was
not there; one that says what was begun tells in which part a job has ended. A job that goes on for
no other one writes the settings once more: what was begun before that did not end it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mpi4py import MPI

from onesided.apps.cli.failures import CommandError, from_rank_0, words
from onesided.apps.cli.files import beside, is_stream
from onesided.apps.cli.launch import GOES_ON
from onesided.apps.cli.machine import Layout, circumstances, code, environment, library, versions
from onesided.apps.cli.report import Report, Row
from onesided.apps.cli.statistics import Verdict
from onesided.collectives.hardware import processor

SETTINGS, BEGUN, PART = "settings", "begun", "part"


@dataclass
class Part:
    """What a part of a benchmark adds to its report."""

    rows: list[Row] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    pattern: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Part:
        """Local. Of its fields; KeyError, TypeError or ValueError for anything else."""
        verdicts = {what: Verdict(**verdict) for what, verdict in record["verdicts"].items()}
        rows = [Row.of(row) for row in record["rows"]]
        return cls(**{**record, "rows": rows, "verdicts": verdicts})


class Parts:
    """The parts of a benchmark, measured one after the other and added to its report.

    What the file beside the JSON file has is not measured again; without one nothing is kept.
    """

    def __init__(
        self, comm: MPI.Intracomm, report: Report, path: str | None, inputs: Sequence[Path] = ()
    ) -> None:
        """Collective. What was begun by other code, in another environment, with other options or
        of other ``inputs`` begins anew."""
        self._report = report
        kept = path is not None and not is_stream(Path(path)) and comm.rank == 0
        self._file = report.kept = beside(path) if kept and path is not None else None
        given, binding = dict(report.settings), circumstances(comm)["binding"]
        nodes = list(Layout.of(comm).ranks_per_node)

        def begin() -> tuple[dict[str, Part], set[str]]:
            if self._file is None:
                return {}, set()
            return _begun(self._file, {
                "command": report.command, "settings": given, "ranks per node": nodes,
                "mpi": library(), "code": code(), "versions": versions(),
                "environment": environment(), "processor": processor(), "binding": binding,
                "inputs": [_stamp(file) for file in inputs],
            })  # fmt: skip

        #: Those that are done, by name; and the names of those in which the job has ended for which
        #: this one goes on.
        self.done, self.broken = from_rank_0(comm, begin)

    def add(self, name: str, measure: Callable[[Part], object], *, keep: bool = True) -> None:
        """Collective over those that take part. Measure a part if it is not there, and add it.

        ``keep`` false: it is measured in any case, because it does more than can be kept.
        """
        part = self.done.get(name) if keep else None
        if part is None:
            part = Part()
            if keep:
                self._write({BEGUN: name})
            measure(part)
            if keep:
                self.done[name] = part
                self._write({"name": name, PART: asdict(part)})
        report = self._report
        report.rows += part.rows
        report.remarks = list(dict.fromkeys([*report.remarks, *part.remarks]))
        report.verdicts |= part.verdicts
        report.pattern = {**report.pattern, **part.pattern}

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        try:
            _append(self._file, line)
        except OSError as error:  # the file that was asked for is not this one
            print(f"{words(error)}: what is measured is kept no longer", file=sys.stderr)
            self._file = None


def _begun(path: Path, settings: Mapping[str, Any]) -> tuple[dict[str, Part], set[str]]:
    """Local. The parts of a file that was begun with these settings, by name, and the names of
    those in which the jobs before this one have ended; else a new file."""
    text, wanted = b"", json.loads(json.dumps(settings))
    with contextlib.suppress(FileNotFoundError):
        text = path.read_bytes()
    ours = json.dumps({SETTINGS: {}}).encode()[:-2]
    if not ours.startswith(text[: len(ours)]):  # it may be cut off
        raise CommandError(f"{path} is in the way: it has no parts of a benchmark")
    lines = _lines(text)
    if not lines or lines[0].get(SETTINGS) != wanted:
        path.unlink(missing_ok=True)
        _append(path, {SETTINGS: wanted})
        return {}, set()
    try:
        done = {line["name"]: Part.of(line[PART]) for line in lines if PART in line}
    except (KeyError, TypeError, ValueError) as error:
        raise CommandError(f"{path}: a part cannot be read: {words(error)}") from error
    if GOES_ON not in os.environ:
        _append(path, {SETTINGS: wanted})
        return done, set()
    last = max(place for place, line in enumerate(lines) if SETTINGS in line)
    return done, {line[BEGUN] for line in lines[last:] if BEGUN in line} - set(done)


def _stamp(file: Path) -> list[str]:
    """Local. Name and content of a file that is read."""
    with open(file, "rb") as content:
        return [file.name, hashlib.file_digest(content, "blake2b").hexdigest()]


def _append(path: Path, line: Mapping[str, Any]) -> None:
    """Local. A new line, also after one that was cut off; it is on the disk afterwards."""
    with open(path, "a+b") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(line).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _lines(text: bytes) -> list[dict[str, Any]]:
    """Local. Those that are whole."""
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):  # cut off
            found.append(json.loads(line))
    return [each for each in found if isinstance(each, dict)]
