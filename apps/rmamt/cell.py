"""A cell of the matrix: what is measured there, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from onesided.apps.report import byte_count

MULTIPLE, SINGLE = "multiple", "single"  # thread levels
MAIN = "main"  # the label of cells without threads: the main thread alone transfers
TWO_SIDED, SEND = "two-sided", "send"  # in the places of synchronization and operation

#: What transfers in a cell: mpi4py's calls on its threads; the same calls on the main thread alone;
#: a loop in C on its threads, outside of Python's lock; that loop on the main thread alone.
THREADS, ALONE, RELEASED, C = "threads", "alone", "released", "c"


@dataclass(frozen=True)
class Cell:
    """``threads`` is 0 where the main thread transfers; ``size``: bytes of a message.

    ``level``: the thread level that MPI is initialized with.
    """

    pattern: str
    sync: str
    op: str
    threads: int
    size: int
    level: str

    @property
    def labels(self) -> dict[str, str]:
        """Local. For a report."""
        return {
            "pattern": self.pattern,
            "sync": self.sync,
            "op": self.op,
            "threads": str(self.threads or MAIN),
            "level": self.level,
            "message": byte_count(self.size),
        }

    @property
    def is_two_sided(self) -> bool:
        """Local. Whether it is a baseline of sends and receives."""
        return self.op == SEND

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Cell:
        """Local. What :meth:`record` wrote; KeyError, TypeError or ValueError for anything else."""
        return cls(
            str(record["pattern"]),
            str(record["sync"]),
            str(record["op"]),
            int(record["threads"]),
            int(record["size"]),
            str(record["level"]),
        )


@dataclass(frozen=True)
class Run:
    """Seconds of a round in one run: mean and median of all its rounds."""

    mean: float
    median: float


@dataclass
class Outcome:
    """What came of a cell: ``kind`` of failure and ``reason``, both empty where it was measured.

    ``messages`` and ``nbytes`` are those of a round, all ranks together; ``ways``: how many
    messages follow each other in a round, of which a latency is one; ``wrong``: messages with
    wrong data; ``loops``: the runs of everything that transfers, by name.
    """

    messages: int = 0
    nbytes: int = 0
    ways: int = 1
    rounds: int = 0
    wrong: int = 0
    loops: dict[str, list[Run]] = field(default_factory=dict)
    kind: str = ""
    reason: str = ""

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Outcome:
        """Local. What :meth:`record` wrote; KeyError, TypeError or ValueError for anything else."""
        loops = {str(name): _runs(runs) for name, runs in record["loops"].items()}
        return cls(
            int(record["messages"]),
            int(record["nbytes"]),
            int(record["ways"]),
            int(record["rounds"]),
            int(record["wrong"]),
            loops,
            str(record["kind"]),
            str(record["reason"]),
        )


def _runs(records: Sequence[Mapping[str, Any]]) -> list[Run]:
    return [Run(float(each["mean"]), float(each["median"])) for each in records]
