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

*Progress* is that of the messages (:mod:`..partitioned.request`): a piece that is ready leaves
wherever the program is then, unless it is packed into ghost layers, which ``Wait``, ``Test`` and
``Parrived`` unpack.
"""

from __future__ import annotations

import operator
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import debug, progress
from onesided.collectives.agreement import largest
from onesided.collectives.errors import RequestError
from onesided.collectives.halo.faces import Face
from onesided.collectives.halo.plan import initialize
from onesided.collectives.halo.traffic import Incoming, Outgoing, Transport
from onesided.collectives.partitioned.channel import AUTO
from onesided.collectives.partitioned.init import AGGREGATE
from onesided.collectives.pattern import Box
from onesided.collectives.program import ACTIVE, BROKEN, FREED, call, load
from onesided.collectives.request import Persistent

H = TypeVar("H", Incoming, Outgoing)


class HaloExchange(Persistent):
    """Ghost layers of an n-dimensional block, filled from all neighbors at once, step by step.

    ``Start``, local, begins a round and waits for nobody; from then on ghost layers may be written.
    ``Test(status=None)`` tells whether the round is complete, which makes the exchange inactive.
    ``setup_time`` is the time that initialization took on this rank, in seconds.
    """

    noun = "halo exchange"

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
        super().__init__(plan.resources.context.comm.Iprobe, True)
        self.array = array
        self.faces: tuple[Face, ...] = plan.faces
        self.method: str = plan.method
        self._resources, self._traffic = plan.resources, plan.traffic
        self._serial, self._tags = plan.number, plan.tags
        self._everywhere = progress.may_call_from_any_thread()
        self._guard = threading.Lock()
        self._begun = self._waited = 0  # the round that its messages have begun, and completed
        self._failure: BaseException | None = None
        traffic = plan.traffic
        self._outgoing, self._incoming = traffic.outgoing, traffic.incoming
        self._coming = [half for half in traffic.incoming if half.pieces]
        self._receive_waits = [(half.wait, half) for half in self._coming]
        self._starts = [request.Start for request in (*traffic.receives, *traffic.sends)]
        self._send_waits = [request.Wait for request in traffic.sends]
        self._send_tests = [request.Test for request in traffic.sends]
        self._flags = traffic.flags.bytes
        self._zeros = bytes(len(self._flags))
        self._total = self._missing = sum(len(half.pieces) for half in traffic.outgoing)
        self._sent = len(self._flags) - self._total  # the flags of what leaves are the last ones
        self._ones = b"\1" * self._total
        load(self, 1, [[[call(self._advance, serves=False)]]], [array])
        debug.observe(self)
        self._made = True
        self.setup_time = time.perf_counter() - began

    # -- what can be asked -----------------------------------------------------------------------

    @property
    def filling(self) -> bool:
        """Local. True while pieces are not ready."""
        return bool(self._state == ACTIVE and self._missing > 0)

    @property
    def recvbuf(self) -> NDArray[Any]:
        """Local. The array."""
        return self.array

    def pieces(self, face: int) -> tuple[Box, ...]:
        """Local. The boxes of the array that the marks of a face are about, by partition."""
        return self._half(self._outgoing, face, "asked for its pieces").pieces

    def arrivals(self, face: int) -> tuple[Box, ...]:
        """Local. The boxes of the array that arrive, by partition, as the neighbor cuts them."""
        return self._half(self._incoming, face, "asked for its arrivals").pieces

    def waiting_for(self) -> str:
        """Local. What an active exchange lacks, in words, for the watchdog."""
        missing = [
            (face, piece) for face, half in enumerate(self._outgoing)
            for piece in range(len(half.pieces)) if not self._flags[half.first + piece]
        ]  # fmt: skip
        if not missing:
            return "its neighbors"
        first = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        return f"{len(missing)} pieces to be marked (face and piece: {first})"

    def __repr__(self) -> str:
        count = len(self.faces)
        return f"<{self.method} halo of {count} faces: {self.state}, {self.rounds} starts>"

    # -- the verbs: Start and Test are the interpreter's ------------------------------------------

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
        self._guard.acquire()  # "with" takes longer
        try:
            self._check_markable()
            flag = self._flag(half, face, partition)
            if self._flags[flag]:
                raise self._twice(face, partition)
            self._flags[flag] = 1
            self._missing -= 1
        finally:
            self._guard.release()
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

    def Wait(self, status: MPI.Status | None = None) -> NDArray[Any]:
        """Local in the sense of MPI: it waits for the neighbors, and for marks of other threads.

        Advances all late requests of the process meanwhile. Returns the array, with its ghost
        layers filled; at once on an inactive exchange. Raises :class:`RequestError` on a freed
        one.
        """
        if self._state == ACTIVE and not self._done and self._failure is None:
            try:
                for wait, half in self._receive_waits:
                    wait()
                    if half.whole:
                        self._unpack(half)
                for wait in self._send_waits:
                    wait()
                self._waited = self.rounds
            except BaseException as error:  # the round is broken, and says so below
                self._failure = error
        value: NDArray[Any] = super().Wait(status)
        return value

    def exchange(self) -> NDArray[Any]:
        """Start, mark all faces, and wait; returns the array with its ghost layers filled."""
        self.Start()
        self.Pready_all()
        return self.Wait()

    def Free(self) -> None:
        """Collective. Give back messages and memory; a second call does nothing.

        Any other call afterwards raises :class:`RequestError`. So does this one, on every rank,
        while the exchange is active on any: it can be completed, and freed then.
        """
        if self._state == FREED:
            return
        error = self._misuse("freed") if self._state == ACTIVE else None
        comm, broken = self._resources.context.comm, int(self._state == BROKEN)
        broken = largest(comm, error, ("Free", self._serial), [broken])[0]
        self._retire()
        self._unload()
        self._coming, self._receive_waits = [], []
        self._starts, self._send_waits, self._send_tests = [], [], []
        self._resources.release()
        if not broken:  # else messages may be under way, in this memory and with these tags
            self._traffic.give_back()
            self._resources.context.give_tags(self._tags)

    # -- inside ----------------------------------------------------------------------------------

    def _advance(self) -> bool:
        """What a round consists of: called until it is true."""
        if self._failure is not None:
            raise self._failure
        if self._begun != self.rounds:
            self._flags[:] = self._zeros
            self._missing = self._total
            for start in self._starts:
                start()
            self._begun = self.rounds
            return not self._flags
        if self._waited == self.rounds:
            return True
        for half in self._coming:
            if not half.test():
                return False
            if half.whole:
                self._unpack(half)
        return all(test() for test in self._send_tests)

    def _drive(self) -> None:
        """The messages have done it."""

    def _has_arrived(self, half: Incoming, flag: int) -> bool:
        """Whether a piece can be read; it is unpacked where that is needed."""
        if self._state != ACTIVE or self._flags[flag]:
            return True
        piece = flag - half.first
        if not half.arrived(piece):
            if self._everywhere or MPI.Is_thread_main():
                progress.drive(self._probe, self)
            return False
        if half.copies:
            with half.lock:
                if not self._flags[flag]:
                    target, source = half.copies[piece]
                    target[...] = source
                    self._flags[flag] = 1
        return True

    def _half(self, halves: Sequence[H], face: int, verb: str) -> H:
        if self._state in (BROKEN, FREED):
            self._refuse(verb)
        try:
            if face >= 0:
                return halves[face]
        except (IndexError, TypeError):
            pass
        raise RequestError(f"no face {face!r}: there are {len(self.faces)}, {self!r}")

    def _flag(self, half: Outgoing | Incoming, face: int, partition: int) -> int:
        """The place of a piece among the flags."""
        try:
            if 0 <= operator.index(partition) < len(half.pieces):
                return half.first + partition
        except TypeError:
            pass
        raise RequestError(
            f"no piece {partition!r} of face {face}: there are {len(half.pieces)}, {self!r}"
        )

    def _claim_face(self, face: int, half: Outgoing) -> None:
        """Mark all pieces of a face, none of which is ready."""
        with self._guard:
            self._check_markable()
            self._check_unmarked(face, half)
            self._flags[half.span] = half.ones
            self._missing -= len(half.pieces)

    def _claim_all(self) -> None:
        """Mark all pieces of all faces, none of which is ready."""
        with self._guard:
            self._check_markable()
            if self._missing < self._total:
                for face, half in enumerate(self._outgoing):
                    self._check_unmarked(face, half)
            self._flags[self._sent :] = self._ones
            self._missing = 0

    def _check_unmarked(self, face: int, half: Outgoing) -> None:
        ready = self._flags[half.span].find(1)
        if ready >= 0:
            raise self._twice(face, ready)

    def _unpack(self, half: Incoming) -> None:
        """Everything has arrived: unpack what nobody has asked for."""
        flags, span = self._flags, half.span
        half.lock.acquire()  # "with" takes longer, and this is done for every face
        try:
            if 1 not in flags[span]:
                for target, source in half.whole:
                    target[...] = source
            else:
                for ready, (target, source) in zip(flags[span], half.copies, strict=True):
                    if not ready:
                        target[...] = source
            flags[span] = half.ones
        finally:
            half.lock.release()

    def _check_markable(self) -> None:
        """The caller holds the guard. Another thread may be in the middle of ``Start``."""
        while self._state == ACTIVE and self._begun != self.rounds:
            os.sched_yield()
        if self._state != ACTIVE:
            self._refuse("marked ready")

    def _twice(self, face: int, piece: int) -> RequestError:
        return RequestError(f"piece {piece} of face {face} is marked ready twice: {self!r}")
