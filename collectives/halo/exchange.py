"""The halo of a block as one persistent request.

::

    inactive --Start()--> active --Wait(), or Test() that returns True--> inactive --Free()--> freed

    halo.exchange()                  # Start, and Wait

What travels leaves at ``Start``; with ``partitions`` it leaves piece by piece, for threads that
compute a step tile by tile::

    halo.Start()
    ...                              # a thread writes the layers of piece 2 of face 0
    halo.Pready(0, 2)                # ... and tells so: they leave
    while not halo.Parrived(1): ...  # whoever needs the ghost layers of face 1 only
    halo.Wait()                      # all ghost layers are there

*Whose is what.* From ``Start`` until ``Wait``, or until ``Parrived`` has told that a piece is
there, the ghost layers belong to the exchange, which may write them at any time; the layers that
are sent must not be modified from ``Start``, or from their mark, until ``Wait``. All else is the
caller's.

*Progress* is that of every request (:mod:`..progress`): what could not leave at once leaves
wherever the program is then.
"""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import debug, progress
from onesided.collectives.agreement import largest
from onesided.collectives.errors import PatternError, RequestError
from onesided.collectives.halo.faces import (
    AUTO,
    Face,
    Place,
    grid_faces,
    listed_faces,
    read_corners,
)
from onesided.collectives.halo.parcels import Parcel
from onesided.collectives.halo.plan import Combine, Fill, Ghosts, initialize
from onesided.collectives.hints import MANUAL
from onesided.collectives.pattern import Box
from onesided.collectives.program import ACTIVE, BROKEN, FREED, fence, load
from onesided.collectives.request import Persistent

Info = Mapping[str, str] | MPI.Info | None


class HaloExchange(Persistent):
    """Ghost layers of n-dimensional blocks, filled from all neighbors at once, step by step.

    ``Start``, local, begins a round and waits for nobody; from then on ghost layers may be written.
    ``Wait(status=None)`` returns what was given, with ghost layers filled: the array, or a tuple
    with an array per field, of those that take turns the one whose turn it was.
    ``Test(status=None)`` tells whether the round is complete, which makes the exchange inactive.
    ``setup_time`` is the time that initialization took on this rank, in seconds.
    """

    noun = "halo exchange"

    def __init__(
        self,
        comm: MPI.Comm,
        fields: Any,
        width: Any,
        *,
        neighbors: Sequence[Any] | None = None,
        ghosts: str = "all",
        corners: str = AUTO,
        partitions: int | Sequence[int] | None = None,
        info: Info = None,
    ) -> None:
        """Collective. Plan the exchange; the arrays are not touched.

        Parameters
        ----------
        comm
            A Cartesian communicator, whose axes are the first ones of the arrays; or any other
            one, with ``neighbors``.
        fields
            This rank's block with its ghost layers: an array of any number of axes, strides and
            dtype of fixed size; or a list of such *fields*, which travel together, one message
            per neighbor. Instead of an array, a tuple of arrays of one form that take turns round
            by round, as a state before a step and after it do. What is long is stored straight
            into ghost layers in memory from :func:`empty`.
        width
            Ghost layers: a number for all axes of the grid, or per axis of an array a number or
            (low, high). The same on all ranks. With ``neighbors`` it may be None, else the boxes
            are checked against it.
        neighbors
            ``(rank, send box, receive box)`` for everything that is exchanged with a rank, which
            may occur several times; as a fourth a tag, as a fifth a tuple of axes along which what
            comes is put in reversed order (a fold). Boxes are tuples of slices, or of (start,
            stop), into every field, or None. Without tags the n-th entry for a rank is matched
            with that rank's n-th entry for this one.
        ghosts
            What a Cartesian halo has: ``"faces"``, ``"edges"`` (faces and edges), or ``"all"``.
        corners
            How all ghosts of a Cartesian halo come: ``"direct"``, a message from every neighbor,
            3^d - 1 at most; ``"axes"``, along one axis after the other, 2 d messages of which
            those along an axis leave when the ones before have come; or ``"auto"``, by the number
            of messages. What is marked piece by piece goes directly; where only some ranks mark
            pieces, the others say so.
        partitions
            Pieces of every face that are marked, and leave, one by one: a number, for the first
            axis in memory along which the face has as many layers, or one number per axis. The
            axis that leads to the neighbor is not cut. Pieces differ by one layer at most, the
            larger come first, and a face with fewer layers has fewer pieces. None: nothing is
            marked, and all leaves at ``Start``.
        info
            ``ranks_per_node`` emulates smaller nodes, ``progress=manual`` keeps progress threads
            away; other keys are ignored.

        Raises
        ------
        PatternError
            On every rank, with the same words: boxes that reach beyond the array, receive boxes
            that overlap each other or a send box, blocks with fewer layers than the width, ranks
            that do not exist, shapes or dtypes that differ between two sides.
        """

        def faces_of(array: NDArray[Any]) -> Iterable[Face]:
            if neighbors is not None:
                return listed_faces(neighbors, array.shape, comm.Get_size(), width)
            route = read_corners(corners, partitions is not None)
            return grid_faces(array.shape, width, _place(comm), ghosts, corners=route)

        self._set_up(comm, fields, faces_of, partitions, info)

    @classmethod
    def of(
        cls, comm: MPI.Comm, fields: Any, faces_of: Callable[[NDArray[Any]], Iterable[Face]],
        partitions: Any = None, info: Info = None, combine: Combine | None = None,
        empties: Any = None, fills: Callable[[], Sequence[Sequence[Fill]]] | None = None,
    ) -> Self:
        """Collective. One with faces, by array, that the caller knows; see :func:`.initialize`."""
        made = cls.__new__(cls)
        made._set_up(comm, fields, faces_of, partitions, info, combine, empties, fills)
        return made

    def _set_up(
        self, comm: MPI.Comm, fields: Any, faces_of: Callable[[NDArray[Any]], Iterable[Face]],
        partitions: Any, info: Info, combine: Combine | None = None, empties: Any = None,
        fills: Callable[[], Sequence[Sequence[Fill]]] | None = None,
    ) -> None:
        began = time.perf_counter()
        ghosts = initialize(comm, fields, faces_of, partitions, info, combine, empties, fills)
        self._ghosts: Ghosts = ghosts
        by_thread = ghosts.hints.progress != MANUAL
        super().__init__(ghosts.resources.context.comm.Iprobe, by_thread)
        self.faces: tuple[Face, ...] = ghosts.faces
        self.fields = fields
        self._everywhere = progress.may_call_from_any_thread()
        self._guard = threading.Lock()
        self._marked = partitions is not None
        self._quiet = False  # nobody has to hear that this is late
        self._late_by = by_thread
        if self._marked:
            self._by_thread = 0  # from Start on it would look after what nobody has marked
        self._ready, self._left = ghosts.ready, ghosts.left
        self._by_face: list[list[int]] = [[] for _ in self.faces]
        for number, parcel in enumerate(ghosts.out):
            for face, _ in parcel.faces:
                self._by_face[face].append(number)
        self._into: list[list[Parcel]] = [[] for _ in self.faces]
        for parcel in ghosts.into:
            for face, _ in parcel.faces:
                self._into[face].append(parcel)
        if ghosts.afterwards:
            self._hooked = 1  # so that _after_wait is called
        load(self, ghosts.turns, ghosts.plans, self._given(fields, ghosts.turns))
        debug.observe(self)
        self._made = True
        self.setup_time = time.perf_counter() - began

    @staticmethod
    def _given(fields: Any, turns: int) -> list[Any]:
        """What Wait returns, by turn."""
        if isinstance(fields, np.ndarray):
            return [fields] * turns
        levels = [entry if isinstance(entry, tuple) else (entry,) for entry in fields]
        found = [tuple(each[turn % len(each)] for each in levels) for turn in range(turns)]
        return [each[0] if len(each) == 1 else each for each in found]

    # -- what can be asked -----------------------------------------------------------------------

    @property
    def method(self) -> str:
        """Local. The ways in which parcels come and leave here, in words."""
        parcels = (*self._ghosts.out, *self._ghosts.into)
        return ", ".join(sorted({parcel.path for parcel in parcels} - {""})) or "copies"

    @property
    def filling(self) -> bool:
        """Local. True while pieces are not ready."""
        return bool(self._marked and self._state == ACTIVE and self._unmarked())

    @property
    def recvbuf(self) -> Any:
        """Local. What ``Wait`` has returned, or will return first."""
        return self._answers[self._slot] if self._state != FREED else None

    def pieces(self, face: int) -> tuple[Box, ...]:
        """Local. The boxes of the first field that the marks of a face are about, by partition."""
        cuts = self._ghosts.cuts[self._face(face, "asked for its pieces")]
        return () if cuts is None else cuts.within(self.faces[face].send)

    def arrivals(self, face: int) -> tuple[Box, ...]:
        """Local. The boxes of the first field that arrive, as the neighbor cuts them."""
        cuts = self._ghosts.expected[self._face(face, "asked for its arrivals")]
        entry = self.faces[face]
        return () if cuts is None else cuts.within(entry.recv, entry.flip)

    def waiting_for(self) -> str:
        """Local. What an active exchange lacks, in words, for the watchdog."""
        missing = self._unmarked()
        if missing:
            first = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
            return f"{len(missing)} pieces to be marked (face and piece: {first})"
        stands = self.stands()
        late = {parcel.peer for parcel in self._ghosts.into
                if stands and stands[parcel.chain][0] < stands[parcel.chain][1]}
        return "data from " + (", ".join(f"rank {peer}" for peer in sorted(late)) or "nobody")

    def __repr__(self) -> str:
        return f"<halo of {len(self.faces)} faces: {self.state}, {self.rounds} starts>"

    # -- the verbs: Start, Wait and Test are the interpreter's -------------------------------------

    def exchange(self) -> Any:
        """Start, mark all faces where they are marked, and wait; returns what ``Wait`` does."""
        if self._marked:
            self.Start()
            self.Pready_all()
            return self.Wait()
        if not self._ghosts.waits:
            self.Start()
            return self.Wait()
        self._quiet, self._by_thread = True, 0  # Wait follows at once
        try:
            self.Start()
            return self.Wait()
        finally:
            self._quiet, self._by_thread = False, int(self._late_by)

    def Pready(self, face: int, partition: int | None = None) -> None:
        """Local. A piece of a face, or all of it, is ready, and leaves; from any thread.

        ``face`` counts :attr:`faces`, ``partition`` the :meth:`pieces` of it. Raises
        :class:`RequestError`, and sends nothing, where the exchange is not active or has no
        pieces to be marked, there is no such piece, or one is ready already.
        """
        cells = self._by_face[self._face(face, "marked ready")]
        if partition is not None:
            cells = [cells[self._piece(partition, len(cells), face)]]
        self._mark(cells)

    def Pready_all(self) -> None:
        """Local. All pieces of all faces are ready. Raises as :meth:`Pready` does."""
        self._mark(range(len(self._ghosts.out)))

    def Parrived(self, face: int, partition: int | None = None) -> bool:
        """Local. Whether a piece of a face's ghost layers, or all of them, can be read.

        ``partition`` counts the :meth:`arrivals` of the face. True on an inactive exchange, as in
        MPI. Where it is false all active requests of the process have been advanced, so that it
        may be asked until it is true; from any thread, but under a thread level below multiple it
        may stay false outside of the main thread unless that one advances the exchange.

        Raises :class:`RequestError` where there is no such piece, and on a freed exchange.
        """
        parcels = self._into[self._face(face, "asked for a piece")]
        if partition is not None:
            parcels = [parcels[self._piece(partition, len(parcels), face)]]
        if self._state != ACTIVE:
            return True
        self.advance(self._may_call())
        if self._there(parcels):
            return True
        if self._may_call():
            progress.drive(self._probe, self)
        return False

    def Free(self) -> None:
        """Collective. Give back messages and memory; a second call does nothing.

        Any other call afterwards raises :class:`RequestError`. So does this one, on every rank,
        while the exchange is active on any: it can be completed, and freed then.
        """
        if self._state == FREED:
            return
        error = self._misuse("freed") if self._state == ACTIVE else None
        context, number = self._ghosts.resources.context, self._ghosts.number
        broken = int(self._state == BROKEN)
        broken = largest(context.comm, error, ("Free", number), [broken])[0]
        progress.delist(self)
        self._retire()
        self._unload()
        ghosts = self._ghosts
        for parcel in (*ghosts.out, *ghosts.into):
            parcel.parts, parcel.places, parcel.cell = [], [], None
        ghosts.fields, ghosts.plans = (), []
        ghosts.resources.release(bool(broken))
        if not broken:  # else messages with these tags may be under way
            context.give_tags(ghosts.tags)

    # -- inside ----------------------------------------------------------------------------------

    def _may_call(self) -> bool:
        """Local. Whether this thread may call MPI."""
        return self._everywhere or bool(MPI.Is_thread_main())

    def _mark(self, cells: Sequence[int]) -> None:
        ready = self._ready
        self._guard.acquire()  # "with" takes longer
        try:
            if self._state != ACTIVE:
                self._refuse("marked ready")
            if not self._marked:
                raise RequestError(f"nothing is marked without partitions: {self!r}")
            number = self.rounds
            for cell in cells:
                if ready[cell] == number:
                    raise self._twice(cell)
            fence()
            for cell in cells:
                ready[cell] = number
        finally:
            self._guard.release()
        self.advance(self._may_call())
        for cell in cells:
            if self._left[cell] < number:  # no credit yet, or another thread is in the middle
                progress.enlist(self, self._late_by)
                if self._state != ACTIVE:
                    progress.delist(self)
                return

    def _unmarked(self) -> list[tuple[int, int]]:
        """Local. The pieces, as (face, piece), that are not ready in the active round."""
        if not self._marked:
            return []
        missing = np.flatnonzero(self._ready != self.rounds).tolist()
        return sorted(self._ghosts.out[cell].faces[0] for cell in missing)

    def _there(self, parcels: Sequence[Parcel]) -> bool:
        stands = self.stands()  # none where another thread has completed the round
        return not stands or all(stands[p.chain][0] == stands[p.chain][1] for p in parcels)

    def _face(self, face: int, verb: str) -> int:
        if self._state in (BROKEN, FREED):
            self._refuse(verb)
        try:
            if 0 <= operator.index(face) < len(self.faces):
                return face
        except TypeError:
            pass
        raise RequestError(f"no face {face!r}: there are {len(self.faces)}, {self!r}")

    def _piece(self, partition: int, count: int, face: int) -> int:
        try:
            if 0 <= operator.index(partition) < count:
                return partition
        except TypeError:
            pass
        raise RequestError(f"no piece {partition!r} of face {face}: there are {count}, {self!r}")

    def _twice(self, cell: int) -> RequestError:
        face, piece = self._ghosts.out[cell].faces[0]
        return RequestError(f"piece {piece} of face {face} is marked ready twice: {self!r}")

    def _after_wait(self) -> None:
        for fill in self._ghosts.afterwards[self._slot]:
            if callable(fill):
                fill()
            else:
                target, source = fill
                target[...] = source

    def _enlist(self) -> None:
        if not (self._quiet or self._marked):
            super()._enlist()


def _place(comm: MPI.Comm) -> Place:
    """Local. This rank in the grid of a Cartesian communicator."""
    if comm.Get_topology() != MPI.CART:
        raise PatternError("the communicator has no Cartesian topology: list the neighbors")
    dims, periods, coords = MPI.Cartcomm(comm).Get_topo()
    return Place(tuple(dims), tuple(map(bool, periods)), tuple(coords))
