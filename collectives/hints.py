"""The info argument of the initialization functions: hints that this package knows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mpi4py import MPI

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
        nodes = _number(values, "ranks_per_node", 1, 0)
        return cls(
            ranks_per_node=nodes or None,
            slots=_number(values, "slots", 1, 2, most=2),
            strict=_truth(values, STRICT, False),
            expected_iterations=_number(values, "expected_iterations", 1, 0),
            effort=_word(values, "effort", EFFORTS),
            progress=_word(values, "progress", PROGRESS),
            child_order=_word(values, "child_order", (LARGEST_FIRST, *orders())),
            segment_bytes=_number(values, "segment_bytes", 1, 0),
            compiled=_truth(values, "compiled", True),
        )


#: The keys that are known, and how alike an unknown one is that was probably meant to be one.
KEYS = (
    "ranks_per_node", "slots", STRICT, "expected_iterations", "effort", "progress", "child_order",
    "segment_bytes", "compiled",
)  # fmt: skip
ALIKE = 0.85


def _doubt(values: Mapping[str, str]) -> None:
    """Unknown keys are ignored, as MPI does; a misspelled one is a warning."""
    for key in values.keys() - KEYS:
        words = likely(key, KEYS, ALIKE)
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


def _word(values: Mapping[str, str], key: str, known: Sequence[str]) -> str:
    """The value of a key, the first of the known ones without it."""
    word = values.get(key, known[0])
    if word not in known:
        names = ", ".join(dict.fromkeys(known))
        raise PatternError(f"info key {key!r} is {word!r}, not one of {names}{likely(word, known)}")
    return word


YES, NO = ("true", "1", "yes"), ("false", "0", "no")


def _truth(values: Mapping[str, str], key: str, default: bool) -> bool:
    word = values.get(key, str(default)).strip().lower()
    if word not in (*YES, *NO):
        raise PatternError(f"info key {key!r} is {values[key]!r}, not one of {', '.join(YES)}, "
                           f"{', '.join(NO)}{likely(word, (*YES, *NO))}")
    return word in YES


def _number(
    values: Mapping[str, str], key: str, least: int, default: int, most: int | None = None
) -> int:
    if key not in values:
        return default
    try:
        number = int(values[key])
    except ValueError:
        number = least - 1
    if number < least or (most is not None and number > most):
        upper = "" if most is None else f" and at most {most}"
        raise PatternError(f"info key {key!r} is {values[key]!r}, not a number of at least "
                           f"{least}{upper}")
    return number
