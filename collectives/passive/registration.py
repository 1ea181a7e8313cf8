"""Windows that a runtime has taken over, and the numbers that name them."""

from __future__ import annotations

from dataclasses import dataclass

from mpi4py import MPI

from onesided.collectives.agreement import agree
from onesided.collectives.errors import PatternError, RequestError
from onesided.collectives.passive.extents import Extents, extents_of


@dataclass(frozen=True)
class Exposed:
    """A registered window: data may be put anywhere inside its extents."""

    window: MPI.Win
    extents: Extents

    def sync(self) -> None:
        """Local. Make what has been put here visible to loads, unless the window is gone."""
        if self.window != MPI.WIN_NULL:
            self.window.Sync()


class Registered:
    """The windows by their numbers, which are the same on all ranks."""

    def __init__(self) -> None:
        self._known: list[Exposed] = []

    def __getitem__(self, wid: int) -> Exposed:
        if not isinstance(wid, int) or not 0 <= wid < len(self._known):
            raise PatternError(f"window {wid!r:.20} is not registered; {len(self._known)} are")
        return self._known[wid]

    def add(self, comm: MPI.Intracomm, window: MPI.Win) -> int:
        """Collective. Lock the window on all ranks, or on none; its number.

        All ranks know the window before any rank can name it in a broadcast.
        """
        extents = extents_of(comm, window)
        wid = len(self._known)
        error: Exception | None = None
        try:
            self._lock(window)
            self._known.append(Exposed(window, extents))
        except RequestError as problem:
            error = problem
        try:
            agree(comm, error, ("register", wid))
        except Exception:
            if error is None:
                self._known.pop()
                window.Unlock_all()
            raise
        return wid

    def _lock(self, window: MPI.Win) -> None:
        if any(window == exposed.window for exposed in self._known):
            raise RequestError("the window is registered already")
        try:
            window.Lock_all(MPI.MODE_NOCHECK)
        except MPI.Exception as error:
            words = error.Get_error_string()
            raise RequestError(f"the window has an epoch open: MPI: {words}") from error

    def sync(self) -> None:
        """Local. Make what has been put into the windows of this rank visible to its loads."""
        for exposed in self._known:
            exposed.sync()

    def release(self) -> None:
        """Collective. Give the windows back to the caller; those that he has freed are gone."""
        while self._known:
            window = self._known.pop().window
            if window != MPI.WIN_NULL:
                window.Unlock_all()
