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
import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import progress
from onesided.collectives.agreement import agree
from onesided.collectives.errors import RequestError
from onesided.collectives.halo.face import Face
from onesided.collectives.halo.initialization import initialize
from onesided.collectives.halo.traffic import Transport
from onesided.collectives.handle import ACTIVE, FREED, INACTIVE
from onesided.collectives.partitioned.init import AGGREGATE
from onesided.collectives.partitioned.registry import AUTO
from onesided.collectives.pattern import Box


class HaloExchange:
    """Ghost layers of an n-dimensional block, filled from all neighbors at once, step by step."""

    #: A halo has no place among the requests that are completed in order.
    turn = (0, 0)
    _state = FREED  # until it has been made

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
        info: MPI.Info | None = None,
    ) -> None:
        """Collective. Plan the exchange; nothing is sent of the array, and nothing written to it.

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
        self.array = array
        self.faces: tuple[Face, ...] = plan.faces
        self._resources, self._traffic = plan.resources, plan.traffic
        self.method: str = plan.method
        self._number = plan.number
        self.probe = plan.resources.context.comm.Iprobe
        self._everywhere = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self._lock = threading.Lock()
        self._outgoing, self._incoming = plan.traffic.outgoing, plan.traffic.incoming
        self._waited = [half for half in (*self._incoming, *self._outgoing) if half.pieces]
        self._marked = [bytearray(len(half.pieces)) for half in self._outgoing]
        self._zeros = [bytes(len(marks)) for marks in self._marked]
        self._total = self._missing = sum(map(len, self._marked))
        self._rounds = 0
        self._state = INACTIVE
        self.setup_time = time.perf_counter() - began

    # -- what can be asked -----------------------------------------------------------------------

    @property
    def state(self) -> str:
        """Local. ``"inactive"``, ``"active"`` or ``"freed"``."""
        return self._state

    @property
    def active(self) -> bool:
        """Local. True between ``Start`` and completion."""
        return self._state is ACTIVE

    @property
    def filling(self) -> bool:
        """Local. True while pieces are not ready."""
        return self._state is ACTIVE and self._missing > 0

    @property
    def rounds(self) -> int:
        """Local. How many times the exchange has been started."""
        return self._rounds

    def pieces(self, face: int) -> tuple[Box, ...]:
        """Local. The boxes of the array that the marks of a face are about, by partition."""
        return self._half(self._outgoing, face, "asked for its pieces").pieces

    def arrivals(self, face: int) -> tuple[Box, ...]:
        """Local. The boxes of the array that arrive, by partition, as the neighbor cuts them."""
        return self._half(self._incoming, face, "asked for its arrivals").pieces

    def __repr__(self) -> str:
        count = len(self.faces)
        return f"<{self.method} halo of {count} faces: {self._state}, {self._rounds} starts>"

    # -- the verbs -------------------------------------------------------------------------------

    def Start(self) -> None:
        """Local. Begin a round; it waits for nobody. From now on ghost layers may be written.

        Raises :class:`RequestError` where the exchange is active or freed.
        """
        if self._state is not INACTIVE:
            raise self._misuse("started")
        for marks, zeros in zip(self._marked, self._zeros, strict=True):
            marks[:] = zeros
        self._missing = self._total
        self._rounds += 1
        self._state = ACTIVE
        for half in self._waited:
            half.start()

    def Pready(self, face: int, partition: int | None = None) -> None:
        """Local. A piece of a face, or all of it, is ready, and leaves; from any thread.

        ``face`` counts :attr:`faces`, ``partition`` the :meth:`pieces` of it. Raises
        :class:`RequestError`, and sends nothing, where the exchange is not active, there is no
        such piece, or one is ready already.
        """
        half = self._half(self._outgoing, face, "marked ready")
        marks = self._marked[face]
        with self._lock:
            if self._state is not ACTIVE:
                raise self._misuse("marked ready")
            if partition is None:
                if 1 in marks:
                    raise self._twice(face, marks.index(1))
                marks[:] = b"\1" * len(marks)
                self._missing -= len(marks)
            else:
                self._check(face, partition, len(marks))
                if marks[partition]:
                    raise self._twice(face, partition)
                marks[partition] = 1
                self._missing -= 1
        if partition is not None:
            half.leave(partition)
        elif half.pieces:
            half.leave_all()

    def Pready_all(self) -> None:
        """Local. All pieces of all faces are ready. Raises as :meth:`Pready` does."""
        with self._lock:
            if self._state is not ACTIVE:
                raise self._misuse("marked ready")
            if self._missing < self._total:
                face = next(i for i, marks in enumerate(self._marked) if 1 in marks)
                raise self._twice(face, self._marked[face].index(1))
            for marks in self._marked:
                marks[:] = b"\1" * len(marks)
            self._missing = 0
        for half in self._outgoing:
            half.leave_all()

    def Parrived(self, face: int, partition: int | None = None) -> bool:
        """Local. Whether a piece of a face's ghost layers, or all of them, can be read.

        ``partition`` counts the :meth:`arrivals` of the face. True on an inactive exchange, as in
        MPI. Where it is false all active requests of the process have been advanced, so that it
        may be asked until it is true; from any thread, but under a thread level below multiple it
        stays false outside of the main thread unless that one advances the exchange.

        Raises :class:`RequestError` where there is no such piece, and on a freed exchange.
        """
        half = self._half(self._incoming, face, "asked for a piece")
        if partition is not None:
            self._check(face, partition, len(half.pieces))
        if self._state is not ACTIVE:
            return True
        wanted = range(len(half.pieces)) if partition is None else (partition,)
        for piece in wanted:
            if not half.arrived(piece):
                if self._everywhere or MPI.Is_thread_main():
                    progress.drive(self)
                return False
        return True

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
        for half in self._waited:
            half.wait()
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
        for half in self._waited:
            if not half.test():
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
        self._waited = []
        self._resources.release()
        self._traffic.give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.Free()  # on an exception nothing collective is called

    def __del__(self) -> None:
        if self._state is not FREED:
            warnings.warn(f"{self!r} was never freed", ResourceWarning, source=self, stacklevel=2)

    # -- inside ----------------------------------------------------------------------------------

    def advance_if_free(self) -> None:
        """Local. Nothing: the messages are active requests of their own."""

    def _half(self, halves: Sequence[Any], face: int, verb: str) -> Any:
        if self._state is FREED:
            raise self._misuse(verb)
        if isinstance(face, int | np.integer) and 0 <= face < len(halves):
            return halves[face]
        raise RequestError(f"no face {face!r}: there are {len(self.faces)}, {self!r}")

    def _check(self, face: int, partition: int, count: int) -> None:
        if isinstance(partition, int | np.integer) and 0 <= partition < count:
            return
        raise RequestError(f"no piece {partition!r} of face {face}: there are {count}, {self!r}")

    def _inactive(self, verb: str) -> NDArray[Any]:
        if self._state is FREED:
            raise self._misuse(verb)
        return self.array

    def _incomplete(self) -> RequestError:
        missing = [
            (face, piece) for face, marks in enumerate(self._marked)
            for piece, ready in enumerate(marks) if not ready
        ]  # fmt: skip
        first = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        return RequestError(
            f"{len(missing)} pieces are not ready (face and piece: {first}) and there is no other "
            f"thread to mark them: {self!r}"
        )

    def _misuse(self, verb: str) -> RequestError:
        article = "a" if self._state is FREED else "an"
        return RequestError(f"{article} {self._state} halo exchange cannot be {verb}: {self!r}")

    def _twice(self, face: int, piece: int) -> RequestError:
        return RequestError(f"piece {piece} of face {face} is marked ready twice: {self!r}")
