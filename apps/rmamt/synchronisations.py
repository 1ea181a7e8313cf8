"""The four ways to open and close an epoch; always by the main thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from mpi4py import MPI

from onesided.apps.rmamt.patterns import Route


class Synchronisation(ABC):
    """Between :meth:`open` and :meth:`close` the threads of this rank may put and get."""

    def __init__(self, win: MPI.Win, route: Route) -> None:
        self._win = win
        self._targets = sorted(set(route.outgoing))
        self._origins = sorted(set(route.incoming))

    @abstractmethod
    def open(self) -> None:
        """Collective where the targets take part, else local."""

    @abstractmethod
    def close(self) -> None:
        """As :meth:`open`. All operations are complete at their origins and their targets."""

    def free(self) -> None:
        """Local. What it holds of MPI."""
        self._targets = self._origins = []


class Fence(Synchronisation):
    """MPI_Win_fence of all ranks."""

    def open(self) -> None:
        """Collective."""
        self._win.Fence(MPI.MODE_NOPRECEDE)

    def close(self) -> None:
        """Collective."""
        self._win.Fence(MPI.MODE_NOSUCCEED)


class Pscw(Synchronisation):
    """Post, start, complete, wait: origins with their targets."""

    def __init__(self, win: MPI.Win, route: Route) -> None:
        super().__init__(win, route)
        everyone = win.Get_group()
        self._to = self._group(everyone, self._targets)
        self._from = self._group(everyone, self._origins)
        everyone.Free()

    def open(self) -> None:
        """Collective of origins and targets."""
        if self._from is not None:
            self._win.Post(self._from)
        if self._to is not None:
            self._win.Start(self._to)

    def close(self) -> None:
        """Collective of origins and targets."""
        if self._to is not None:
            self._win.Complete()
        if self._from is not None:
            self._win.Wait()

    def free(self) -> None:
        """Local."""
        for group in (self._to, self._from):
            if group is not None:
                group.Free()
        self._to = self._from = None
        super().free()

    @staticmethod
    def _group(everyone: MPI.Group, ranks: Sequence[int]) -> MPI.Group | None:
        return everyone.Incl(list(ranks)) if ranks else None


class Lock(Synchronisation):
    """A shared lock of every target."""

    def open(self) -> None:
        """Local."""
        for rank in self._targets:
            self._win.Lock(rank, MPI.LOCK_SHARED)

    def close(self) -> None:
        """Local."""
        for rank in self._targets:
            self._win.Unlock(rank)


class LockAll(Synchronisation):
    """One call locks all ranks."""

    def open(self) -> None:
        """Local."""
        if self._targets:
            self._win.Lock_all()

    def close(self) -> None:
        """Local."""
        if self._targets:
            self._win.Unlock_all()


LOCK_ALL = "lock_all"
#: By the words of ``--syncs``.
SYNCHRONISATIONS: Mapping[str, type[Synchronisation]] = {
    "fence": Fence,
    "pscw": Pscw,
    "lock": Lock,
    LOCK_ALL: LockAll,
}
