"""The halo of a block as one persistent request.

::

    inactive --Start()--> active --Wait(), or Test() that returns True--> inactive --Free()--> freed

A round with threads that compute a step tile by tile::

    halo.Start()
    ...                              # a thread writes the layers of piece 2 of face 0
    halo.Pready(0, 2)                # ... and tells so: they leave
    while not halo.Parrived(1): ...  # whoever needs the ghost layers of face 1 only
    halo.Wait()                      # all ghost layers are there

*Whose is what.* From ``Start`` until ``Wait``, or until ``Parrived`` has told that a piece is
there, the ghost layers belong to the exchange, which may write them at any time; the layers of a
piece that is sent must not be modified from its mark until ``Wait``. All else is the caller's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import progress
from onesided.collectives.agreement import agree
from onesided.collectives.halo.halves import Incoming
from onesided.collectives.halo.handle import HaloHandle
from onesided.collectives.halo.initialization import initialize
from onesided.collectives.halo.traffic import Transport
from onesided.collectives.handle import ACTIVE, FREED, INACTIVE
from onesided.collectives.partitioned.init import AGGREGATE
from onesided.collectives.partitioned.registry import AUTO
from onesided.collectives.scope import Scoped


class HaloExchange(HaloHandle, Scoped):
    """Ghost layers of an n-dimensional block, filled from all neighbors at once, step by step."""

    def __init__(
        self,
        comm: MPI.Comm,
        array: NDArray[Any],
        width: Any,
        *,
        neighbors: Sequence[Any] | None = None,
        partitions: int | Sequence[int] = 1,
        method: str = AUTO,
        aggregate: int = AGGREGATE,
        corners: bool = True,
        info: Mapping[str, str] | MPI.Info | None = None,
    ) -> None:
        """Collective. Plan the exchange and rehearse it; afterwards the array is as it was before.

        Parameters
        ----------
        comm
            A Cartesian communicator, whose axes are the first ones of the array; or any other
            one, with ``neighbors``.
        array
            This rank's block with its ghost layers, of any number of axes, strides and dtype of
            fixed size. In memory from :func:`empty`, what comes for ghost layers that are
            contiguous is stored straight into them.
        width
            Ghost layers: a number for all axes of the grid, or per axis of the array a number or
            (low, high). The same on all ranks. With ``neighbors`` it may be None, else the boxes
            are checked against it.
        neighbors
            ``(rank, send box, receive box)``, or that and a tag, for everything that is exchanged
            with a rank, which may occur several times. Boxes are tuples of slices, or of (start,
            stop), into ``array``, or None. Without tags the n-th entry for a rank is matched with
            that rank's n-th entry for this one.
        partitions
            Pieces of every face that are marked, and leave, one by one: a number, for the first
            axis in memory along which the face has as many layers, or one number per axis. The
            axis that leads to the neighbor is not cut. Pieces differ by one layer at most, the
            larger come first, and a face with fewer layers has fewer pieces.
        method, aggregate, info
            As for :func:`Psend_init`: a name of :func:`partitioned_methods`, and the bytes that
            leave together. What a rank exchanges with itself is copied.
        corners
            Whether a Cartesian halo has edges and corners, too, as the messages of diagonal
            neighbors.

        Raises
        ------
        PatternError, MethodError, UnsupportedError, ResourceError
            On every rank, with the same words: boxes that reach beyond the array, receive boxes
            that overlap each other or a send box, blocks with fewer layers than the width, ranks
            that do not exist, shapes or dtypes that differ between two sides.

        Source: persistent partitioned communication of MPI-4.1 chapter 4.
        """
        began = time.perf_counter()
        plan = initialize(comm, array, width, neighbors, partitions, corners,
                          Transport(method, aggregate, info))
        super().__init__(array, plan)
        self.setup_time = time.perf_counter() - began

    # -- the verbs -------------------------------------------------------------------------------

    def Start(self) -> None:
        """Local. Begin a round; it waits for nobody. From now on ghost layers may be written.

        Raises :class:`RequestError` where the exchange is active or freed.
        """
        if self._state is not INACTIVE:
            raise self._misuse("started")
        self._flags[:] = self._zeros
        self._missing = self._total
        for start in self._starts:
            start()
        self._rounds += 1
        self._state = ACTIVE

    def Pready(self, face: int, partition: int | None = None) -> None:
        """Local. A piece of a face, or all of it, is ready, and leaves; from any thread.

        ``face`` counts :attr:`faces`, ``partition`` the :meth:`pieces` of it. Raises
        :class:`RequestError`, and sends nothing, where the exchange is not active, there is no
        such piece, or one is ready already.
        """
        half = self._half(self._outgoing, face, "marked ready")
        if partition is None:
            self._claim_face(face, half)
            for target, source in half.whole:
                target[...] = source
            if half.pieces:
                half.mark_all()
            return
        self._lock.acquire()  # "with" takes longer
        try:
            if self._state is not ACTIVE:
                raise self._misuse("marked ready")
            flag = self._flag(half, face, partition)
            if self._flags[flag]:
                raise self._twice(face, partition)
            self._flags[flag] = 1
            self._missing -= 1
        finally:
            self._lock.release()
        if half.copies:
            target, source = half.copies[partition]
            target[...] = source
        half.mark(partition)

    def Pready_all(self) -> None:
        """Local. All pieces of all faces are ready. Raises as :meth:`Pready` does."""
        self._claim_all()
        for half in self._outgoing:
            for target, source in half.whole:
                target[...] = source
            half.mark_all()

    def Parrived(self, face: int, partition: int | None = None) -> bool:
        """Local. Whether a piece of a face's ghost layers, or all of them, can be read.

        ``partition`` counts the :meth:`arrivals` of the face. True on an inactive exchange, as in
        MPI. Where it is false all active requests of the process have been advanced, so that it
        may be asked until it is true; from any thread, but under a thread level below multiple it
        stays false outside of the main thread unless that one advances the exchange.

        Raises :class:`RequestError` where there is no such piece, and on a freed exchange.
        """
        half = self._half(self._incoming, face, "asked for a piece")
        if partition is None:
            for flag in range(half.first, half.first + len(half.pieces)):
                if not self._has_arrived(half, flag):
                    return False
            return True
        return self._has_arrived(half, self._flag(half, face, partition))

    def Wait(self) -> NDArray[Any]:
        """Local in the sense of MPI: it waits for the neighbors, and for marks of other threads.

        Advances all active requests of the process meanwhile. Returns the array, with its ghost
        layers filled; at once on an inactive exchange. Raises :class:`RequestError` on a freed
        one, and where pieces are not ready and there is no other thread that could mark them.
        """
        if self._state is not ACTIVE:
            return self._inactive("waited for")
        if self._missing and threading.active_count() == 1:
            raise self._incomplete()
        for wait, half in self._receive_waits:
            wait()
            if half.whole:
                self._unpack(half)
        for wait in self._send_waits:
            wait()
        self._state = INACTIVE
        return self.array

    def Test(self) -> bool:
        """Local. True when the round is complete, which makes the exchange inactive.

        Advances all active requests of the process. True at once on an inactive exchange; raises
        :class:`RequestError` on a freed one.
        """
        if self._state is not ACTIVE:
            self._inactive("tested")
            return True
        for half in self._coming:
            if not half.test():
                return False
            if half.whole:
                self._unpack(half)
        for test in self._send_tests:
            if not test():
                return False
        self._state = INACTIVE
        return True

    def exchange(self) -> NDArray[Any]:
        """Start, mark all faces, and wait; returns the array with its ghost layers filled."""
        self.Start()
        self.Pready_all()
        return self.Wait()

    def Free(self) -> None:
        """Collective. Give back messages and memory; a second call does nothing.

        Any other call afterwards raises :class:`RequestError`, as does this one, locally, while
        the exchange is active.
        """
        if self._state is FREED:
            return
        if self._state is ACTIVE:
            raise self._misuse("freed")
        agree(self._resources.context.comm, None, ("Free", self._number))
        self._state = FREED
        self.let_go()
        self._resources.release()
        self._traffic.give_back()
        self._resources.context.give_tags(self._tags)

    # -- inside ----------------------------------------------------------------------------------

    def _has_arrived(self, half: Incoming, flag: int) -> bool:
        """Whether a piece can be read; it is unpacked where that is needed."""
        if self._state is not ACTIVE or self._flags[flag]:
            return True
        piece = flag - half.first
        if not half.arrived(piece):
            if self._everywhere or MPI.Is_thread_main():
                progress.drive(self)
            return False
        if half.copies:
            with half.lock:
                if not self._flags[flag]:
                    target, source = half.copies[piece]
                    target[...] = source
                    self._flags[flag] = 1
        return True
