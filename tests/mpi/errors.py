"""Errors that are expected: on this rank, or the same ones on all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi4py import MPI
from subjects import make
from table import Cell

from onesided.collectives.context import Context

Kind = type[Exception] | tuple[type[Exception], ...]


def raises(kind: Kind, call: Callable[[], Any], *words: str) -> Exception:
    """The error of this kind that the call must raise, with these words in it."""
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in {error!s}"
        return error
    raise AssertionError(f"{kind} with {words} was not raised")


def agreed(comm: MPI.Intracomm, kind: Kind, call: Callable[[], Any], *words: str) -> str:
    """Collective. The call must raise this kind with these words, the same text on every rank, and
    nothing is left of it."""
    live, mine = len(Context.of(comm).live), None
    try:
        call()
    except Exception as error:  # of another kind, too: the others wait for this rank
        mine = error
    texts = comm.allgather(None if mine is None else f"{type(mine).__name__}: {mine}")
    if mine is not None and not isinstance(mine, kind):
        raise mine
    assert None not in texts, f"raised on {sum(t is not None for t in texts)} ranks only: {texts}"
    assert len(set(texts)) == 1, texts
    for word in words:
        assert word in texts[0], f"{word!r} is not in {texts[0]!r}"
    assert len(Context.of(comm).live) == live, "something is left of it"
    return texts[0]


def works(comm: MPI.Intracomm, method: str = "p2p") -> None:
    """Collective. The communicator is still of use."""
    subject = make(comm, Cell("Alltoallv, uneven", method))
    for turn in range(2):
        subject.round(turn)
    subject.free()
