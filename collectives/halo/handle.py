"""What a halo is on one rank: its faces, the flags of their pieces, and what can be asked."""

from __future__ import annotations

import operator
import threading
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.errors import RequestError
from onesided.collectives.halo.face import Face
from onesided.collectives.halo.halves import Incoming, Outgoing
from onesided.collectives.halo.initialization import Plan
from onesided.collectives.handle import ACTIVE, FREED, INACTIVE
from onesided.collectives.pattern import Box

H = TypeVar("H", Incoming, Outgoing)


class HaloHandle:
    """The part of a halo that holds; :class:`~.exchange.HaloExchange` is what acts."""

    #: A halo has no place among the requests that are completed in order.
    turn = (0, 0)
    _state = FREED  # until it has been made

    def __init__(self, array: NDArray[Any], plan: Plan) -> None:
        self.array = array
        self.faces: tuple[Face, ...] = plan.faces
        self.method: str = plan.method
        self.setup_time = 0.0
        self.probe = plan.resources.context.comm.Iprobe
        self._resources, self._traffic = plan.resources, plan.traffic
        self._number, self._tags = plan.number, plan.tags
        self._everywhere = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self._lock = threading.Lock()
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
        self._rounds = 0
        self._state = INACTIVE

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

    def __del__(self) -> None:
        if self._state is not FREED:
            warnings.warn(f"{self!r} was never freed", ResourceWarning, source=self, stacklevel=2)

    # -- inside ----------------------------------------------------------------------------------

    def advance_if_free(self) -> None:
        """Local. Nothing: the messages are active requests of their own."""

    def _half(self, halves: Sequence[H], face: int, verb: str) -> H:
        if self._state is FREED:
            raise self._misuse(verb)
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
        with self._lock:
            if self._state is not ACTIVE:
                raise self._misuse("marked ready")
            self._check_unmarked(face, half)
            self._flags[half.span] = half.ones
            self._missing -= len(half.pieces)

    def _claim_all(self) -> None:
        """Mark all pieces of all faces, none of which is ready."""
        with self._lock:
            if self._state is not ACTIVE:
                raise self._misuse("marked ready")
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

    def let_go(self) -> None:
        """Local. Drop what the exchange knows of its messages."""
        self._coming, self._receive_waits = [], []
        self._starts, self._send_waits, self._send_tests = [], [], []

    def _inactive(self, verb: str) -> NDArray[Any]:
        if self._state is FREED:
            raise self._misuse(verb)
        return self.array

    def _incomplete(self) -> RequestError:
        missing = [
            (face, piece) for face, half in enumerate(self._outgoing)
            for piece in range(len(half.pieces)) if not self._flags[half.first + piece]
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
