"""Where a request receives, and what an exchange is made of and freed with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import Alltoallv_init, OnesidedError, Request, empty, free

Array = NDArray[Any]


@dataclass(frozen=True)
class Place:
    """How receive memory of so many doubles is made and freed, both Collective."""

    make: Callable[[MPI.Intracomm, int], Array | None]
    free: Callable[[Array | None], object]


def _free_window(array: Array | None) -> None:
    if array is not None:
        free(array)


#: By the words of ``--memory``; None is memory of the request, two slots that take turns.
PLACES: Mapping[str, Place] = {
    "slots": Place(lambda comm, count: None, lambda array: None),
    "empty": Place(lambda comm, count: empty(comm, count, np.float64), _free_window),
    "plain": Place(lambda comm, count: np.zeros(count), lambda array: None),
}


def receiving(comm: MPI.Intracomm, memory: str, nbytes: int, stack: ExitStack) -> Array:
    """Collective. So many bytes of a kind of :data:`PLACES`, zeros; freed with the stack."""
    place = PLACES[memory]
    array = place.make(comm, -(-nbytes // 8))
    stack.callback(place.free, array)
    if array is None:
        raise ValueError(f"{memory} is memory of a request")
    array[:] = 0
    return array.view(np.uint8)[:nbytes]


class Exchanger:
    """A persistent exchange with its receive memory: what a set-up makes, and ends with.

    Collective, as :meth:`free` is. The memory of :func:`~onesided.collectives.empty` belongs to
    the set-up, as the window that paper 000 creates does.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        place: Place,
        send: tuple[Array, list[int]],
        recv_counts: list[int],
        method: str,
        info: Mapping[str, str],
    ) -> None:
        self._place = place
        self._memory = place.make(comm, sum(recv_counts))
        received = None if self._memory is None else [self._memory, recv_counts]
        try:
            self.request: Request = Alltoallv_init(
                comm, list(send), received, method=method, info=info
            )
        except OnesidedError:  # the same on every rank
            place.free(self._memory)
            raise
        self._start: Callable[[], Any] = self.request.Start
        self._wait: Callable[[], Any] = self.request.Wait

    @property
    def method(self) -> str:
        """Local. The method in use; of ``auto`` the one that it chose."""
        return self.request.method

    def round(self) -> Any:
        """Collective. One exchange; returns what came, the caller's until the next."""
        self._start()
        return self._wait()

    def free(self) -> None:
        """Collective."""
        self._start = self._wait = _ended
        self.request.Free()
        self._place.free(self._memory)
        self._memory = None


def _ended() -> None:
    raise RuntimeError("the exchange has been freed")
