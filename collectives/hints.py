"""The info argument of the initialization functions: hints that this package knows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

from onesided.collectives.agreement import LARGEST
from onesided.collectives.errors import PatternError, likely
from onesided.collectives.trees import LARGEST_FIRST, orders

MEASURE, ESTIMATE = EFFORTS = ("measure", "estimate")
THREAD, MANUAL = PROGRESS = ("thread", "manual")
STRICT = "mpi_assert_strict_persistent_collective_ordering"


@dataclass(frozen=True)
class Hints:
    """Known keys of an info; unknown ones are ignored, as MPI does.

    ``ranks_per_node`` emulates nodes of that many consecutive ranks, ``slots`` is the number of
    receive slots that a request owns (2, or 1 to save memory), ``strict`` promises that all ranks
    start in the same order (MPI-4.1 section 7.13; the communicator's own info says so as well),
    ``expected_iterations`` is the number of starts that ``auto`` weighs the cost of initialization
    against (0: not known), and ``effort`` whether it may ``measure`` or takes what usually wins
    (``estimate``). ``progress`` is ``thread``, or ``manual`` where only calls of the library may
    advance rounds: then other ranks may wait for this one until it makes one (:mod:`.progress`).

    For broadcasts: ``child_order`` is the order in which the children in a binomial tree are
    served, ``largest-first`` or ``low-bit-first``, and ``segment_bytes`` the size of the segments
    in which long data travel (0: the method's own).

    For partitioned sends: ``compiled`` lets the compiled counter be used where it has been built.
    """

    ranks_per_node: int | None = None
    slots: int = 2
    strict: bool = False
    expected_iterations: int = 0
    effort: str = MEASURE
    progress: str = THREAD
    child_order: str = LARGEST_FIRST
    segment_bytes: int = 0
    compiled: bool = True

    @classmethod
    def of(
        cls, info: Mapping[str, str] | MPI.Info | None, comm: MPI.Comm | None = None
    ) -> Hints:
        """Local. Raises :class:`PatternError` for a known key with a value that makes no sense.

        ``comm``: the communicator, whose own info may have :data:`STRICT`.
        """
        values = {}
        if info is not None and not (isinstance(info, MPI.Info) and info == MPI.INFO_NULL):
            values = {str(key): str(value) for key, value in info.items()}
        if comm is not None and STRICT not in values and _promises_order(comm):
            values[STRICT] = "true"
        if not values:
            return cls()
        _doubt(values)
        return cls(**{
            "strict" if key == STRICT else key: read(key, values[key])
            for key, read in READERS.items() if key in values
        })  # fmt: skip


def _doubt(values: Mapping[str, str]) -> None:
    """Unknown keys are ignored, as MPI does; a misspelled one is a warning."""
    for key in values.keys() - READERS.keys():
        words = likely(key, READERS, ALIKE)
        if words:
            warnings.warn(f"info key {key!r} is not known{words}", RuntimeWarning, stacklevel=2)


def _promises_order(comm: MPI.Comm) -> bool:
    """Local. Whether the communicator's info has the standard's key.

    Open MPI 5.0 has no room for it: its keys are shorter.
    """
    if len(STRICT) >= MPI.MAX_INFO_KEY:
        return False
    info = comm.Get_info()
    try:
        return (info.Get(STRICT) or "").strip().lower() == "true"
    finally:
        info.Free()


def _word(*known: str) -> Callable[[str, str], str]:
    def read(key: str, word: str) -> str:
        if word not in known:
            names = ", ".join(known)
            raise PatternError(
                f"info key {key!r} is {word!r}, not one of {names}{likely(word, known)}"
            )
        return word

    return read


YES, NO = ("true", "1", "yes"), ("false", "0", "no")


def _truth(key: str, value: str) -> bool:
    word = value.strip().lower()
    if word not in (*YES, *NO):
        raise PatternError(f"info key {key!r} is {value!r}, not one of {', '.join(YES)}, "
                           f"{', '.join(NO)}{likely(word, (*YES, *NO))}")
    return word in YES


def _number(most: int = LARGEST) -> Callable[[str, str], int]:
    def read(key: str, value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = 0
        if not 1 <= number <= most:
            raise PatternError(f"info key {key!r} is {value!r}, not a number from 1 to {most}")
        return number

    return read


#: The keys that are known, and what reads their values.
READERS: dict[str, Callable[[str, str], Any]] = {
    "ranks_per_node": _number(), "slots": _number(most=2), STRICT: _truth,
    "expected_iterations": _number(), "effort": _word(*EFFORTS), "progress": _word(*PROGRESS),
    "child_order": _word(*orders()), "segment_bytes": _number(), "compiled": _truth,
}  # fmt: skip

#: How alike an unknown key is to one that was probably meant.
ALIKE = 0.85
