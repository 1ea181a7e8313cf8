"""The halo of a block as one persistent request.

*Whose is what.* From ``Start`` until ``Wait`` the ghost layers belong to the exchange, which may
write them at any time, and the layers that are sent must not be modified. All else is the caller's.
"""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import debug
from onesided.collectives.context import interrupts_later
from onesided.collectives.errors import PatternError, RequestError
from onesided.collectives.halo.faces import DIRECT, Face, Place, grid_faces, listed_faces
from onesided.collectives.halo.plan import FacesOf, Ghosts
from onesided.collectives.hints import MANUAL
from onesided.collectives.initialization import Info
from onesided.collectives.program import ACTIVE, BROKEN, FREED, load
from onesided.collectives.request import Persistent
from onesided.collectives.steps import address

#: What is done to fields: its name, and what else a plan depends on.
Wanted = tuple[str, *tuple[Any, ...]]

#: Lists of fields whose requests a grid keeps.
MOST_PLANS = 32


class HaloExchange(Persistent):
    """Ghost layers of n-dimensional blocks, filled from all neighbors at once, step by step.

    ``Start``, local, begins a round and waits for nobody; from then on ghost layers may be written.
    ``Wait(status=None)`` returns what was given, with ghost layers filled: the array, or a tuple
    with an array per field, of those that take turns the one whose turn it was.
    ``Test(status=None)`` tells whether the round is complete, which makes the exchange inactive.
    ``setup_time`` is the time that initialization took on this rank, in seconds, ``method`` the
    ways in which data come and leave here, in words.

    Examples
    --------
    >>> u = np.array([0.0, 1, 2, 0])  # two cells between two ghosts
    >>> ring = comm.Create_cart([comm.size], periods=[True])
    >>> with HaloExchange(ring, u, 1) as halo:
    ...     halo.Start()
    ...     received = halo.Wait()
    >>> u.tolist()
    [2.0, 1.0, 2.0, 1.0]
    >>> ring.Free()
    """

    noun = "halo exchange"
    #: What is shown at the ends of a grid, a :class:`~.boundary.Boundary`; None without a grid.
    boundary: Any = None

    def __init__(
        self, comm: MPI.Comm, fields: Any, width: Any = None, *,
        neighbors: Sequence[Any] | None = None, ghosts: str = "all", corners: str = DIRECT,
        info: Info = None,
    ) -> None:
        """Collective. Plan the exchange; the arrays are not touched.

        Parameters
        ----------
        comm
            A Cartesian communicator, whose axes are the first ones of the arrays; or any other
            one, with ``neighbors``.
        fields
            This rank's block with its ghost layers: an array of any strides and dtype of fixed
            size; or a list of such *fields*, which travel together, one message per neighbor.
            Instead of an array, a tuple of arrays of one form that take turns round by round. What
            is long is stored straight into ghost layers in memory from :func:`empty`.
        width
            Ghost layers: a number for all axes of the grid, or per axis of an array a number or
            (low, high). The same on all ranks. Boxes of ``neighbors`` need none.
        neighbors
            ``(rank, send box, receive box)`` for everything that is exchanged with a rank, or with
            a tag as a fourth. Boxes are tuples of slices into every field, or None. Without tags
            the n-th entry for a rank is matched with that rank's n-th entry for this one.
        ghosts
            What a Cartesian halo has: ``"faces"``, ``"edges"`` (faces and edges), or ``"all"``.
        corners
            How all ghosts of a Cartesian halo come: ``"direct"``, from all 3^d - 1 neighbors; or
            ``"axes"``, along one axis after the other, 2 d messages of which those along an axis
            leave when the ones before have come. Off the node, ``"axes"`` needs
            ``MPI_THREAD_MULTIPLE``, or info ``progress=manual``.
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

        def faces_of(array: NDArray[Any], number: int) -> Iterable[Face]:
            if neighbors is not None:
                if width is not None:
                    raise PatternError("a width, and neighbors whose boxes tell it")
                return listed_faces(neighbors, array.shape, comm.Get_size())
            return grid_faces(array.shape, width, _place(comm), ghosts, corners)

        self._set_up(comm, fields, faces_of, info)

    @classmethod
    def of(cls, comm: MPI.Comm, fields: Any, faces_of: FacesOf, *more: Any) -> Self:
        """Collective. One with faces, by array, that the caller knows; ``more`` as for
        :class:`~.plan.Ghosts`."""
        made = cls.__new__(cls)
        made._set_up(comm, fields, faces_of, *more)
        return made

    def _set_up(self, comm: MPI.Comm, fields: Any, faces_of: FacesOf, *more: Any) -> None:
        began = time.perf_counter()
        if isinstance(fields, np.ndarray | tuple):  # the second: arrays that take turns
            fields = [fields]
        self._ghosts = Ghosts(comm, fields, faces_of, *more, built=partial(self._take, fields))
        self._made = True
        self.setup_time = time.perf_counter() - began

    def _take(self, fields: Sequence[Any], ghosts: Ghosts) -> None:
        """Local, before ranks agree that all are ready. Take what has been planned."""
        super().__init__(ghosts.context.comm.Iprobe, ghosts.hints.progress != MANUAL)
        self.faces: tuple[Face, ...] = ghosts.fields[0].faces
        ways = {parcel.path for parcel in (*ghosts.out, *ghosts.into)} - {""}
        self.method = ", ".join(sorted(ways)) or "copies"
        levels = [entry if isinstance(entry, tuple) else (entry,) for entry in fields]
        self._period = math.lcm(*map(len, levels))
        self._quiet = False  # nobody has to hear that this is late
        self._late_by = self._by_thread
        answers = [tuple(each[turn % len(each)] for each in levels) for turn in range(ghosts.turns)]
        load(self, ghosts.plans, [a if len(a) > 1 else a[0] for a in answers])
        ghosts.resources.belong_to(self)
        debug.observe()

    @property
    def turned(self) -> bool:
        """Local, internal. Whether the fields that take turns begin anew: another exchange can go
        on."""
        return not self.rounds % self._period

    @property
    def recvbuf(self) -> Any:
        """Local. What ``Wait`` has returned, or will return first."""
        return self._answers[self._slot] if self._state != FREED else None

    def waiting_for(self) -> str:
        """Local, internal. What an active exchange lacks, in words, for the watchdog."""
        stands, me = self.stands(), self._ghosts.context.comm.rank
        late = {parcel.peer for parcel in self._ghosts.into if stands and parcel.peer != me
                and stands[parcel.chain][0] < stands[parcel.chain][1]}
        return "data from " + (", ".join(f"rank {peer}" for peer in sorted(late)) or "nobody")

    def described(self) -> tuple[str, int]:
        parts = [part for parcel in self._ghosts.out for part in parcel.level(0)]
        return self.noun, sum(part.nbytes for part in parts)

    def __repr__(self) -> str:
        return f"<halo of {len(self.faces)} faces: {self.state}, {self.rounds} starts>"

    def __del__(self) -> None:
        if self._made and self._state in (ACTIVE, BROKEN):  # data may come until the end of MPI
            self._ghosts.resources.keep.append(self)
            self._ghosts.resources.belong_to(self)
        super().__del__()  # a warning may have been made an error

    def exchange(self) -> Any:
        """Start and wait; returns what ``Wait`` does. What interrupts that gives the round up."""
        self.check_start()  # before a round that is under way is kept from threads
        self._quiet, self._by_thread = True, 0  # Wait follows at once
        try:
            return complete_round(self)
        finally:
            self._quiet, self._by_thread = False, self._late_by

    def Free(self) -> None:
        """Collective. Give back messages and memory; a second call does nothing.

        Any other call afterwards raises :class:`RequestError`. So does this one, on every rank,
        while the exchange is active on any: it can be completed, and freed then. But where it is
        broken on any rank, its round is given up on all.
        """
        if self._state == FREED:
            return
        ghosts, comm = self._ghosts, self._ghosts.context.comm
        with interrupts_later():
            broken, _, _ = self._agree_to_free(comm, f"Free of halo {ghosts.number}")
            self.retire()
            ghosts.fields, ghosts.plans, ghosts.out, ghosts.into = (), [], [], []
            ghosts.resources.release(broken)
            if not broken:  # else messages with these tags may be under way
                ghosts.context.give_tags(ghosts.tags)

    def _enlist(self) -> None:
        if not self._quiet:
            super()._enlist()


def complete_round(request: Any, between: Callable[[], object] | None = None) -> Any:
    """Start a round, call something, and wait; returns what ``Wait`` does. What interrupts that
    gives the round up: the caller may not have the request, to complete it."""
    rounds = request.rounds
    try:
        request.Start()
        try:
            if between is not None:
                between()
        finally:
            answer = request.Wait()
        return answer
    except RequestError:  # nothing was begun here, or the round is over
        raise
    except BaseException as error:
        if request.rounds != rounds and request.active:
            request.give_up(error)
        raise


def _place(comm: MPI.Comm) -> Place:
    if comm.Get_topology() != MPI.CART:
        raise PatternError("the communicator has no Cartesian topology: list the neighbors")
    dims, periods, coords = MPI.Cartcomm(comm).Get_topo()
    return Place(tuple(dims), tuple(map(bool, periods)), tuple(coords))


class Plans:
    """Requests that are planned once, by what they do and the memory of their fields, which they
    keep alive. Ranks keep and find them in the same order."""

    def __init__(self) -> None:
        #: What was looked for last is the last one.
        self._plans: OrderedDict[tuple[Wanted, Any], Any] = OrderedDict()
        self._warned = False

    def __len__(self) -> int:
        return len(self._plans)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._plans.values())

    def find(
        self, wanted: Wanted, fields: Sequence[Any], check: Callable[[int], object] | None = None
    ) -> Any:
        """Local. The request for these arrays, or views of the same memory; None where there is
        none, or it has been freed by somebody else who keeps it. ``check`` is told its place
        before, 0 for none."""
        name, plan = (wanted, _places(fields)), None
        with contextlib.suppress(TypeError):  # of what makes no sense: planning tells it everywhere
            plan = self._plans.get(name)
        if plan is not None and plan.state == "freed":
            del self._plans[name]
            plan = None
        if check is not None:
            check(0 if plan is None else 1 + list(self._plans).index(name))
        if plan is not None:
            self._plans.move_to_end(name)
        return plan

    def keep(self, wanted: Wanted, fields: Sequence[Any], plan: Any) -> None:
        """Collective. Keep a request; of too many the one that has not been used for longest is
        freed, which a warning tells once. Not in the middle of turns: they would begin anew."""
        idle = [name for name, each in self._plans.items()
                if each.state != "active" and getattr(each, "turned", True)]
        self._plans[wanted, _places(fields)] = plan
        if len(self._plans) <= MOST_PLANS or not idle:
            return
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"more than {MOST_PLANS} lists of fields of one grid: requests are planned anew, "
                "which is slow; keep fields, and write into them", stacklevel=4,
            )  # fmt: skip
        self._plans.pop(idle[0]).Free()

    def Free(self) -> None:
        """Collective. Give all back."""
        for plan in self:
            plan.Free()
        self._plans.clear()


def _places(fields: Sequence[Any]) -> Any:
    """What tells the memory of fields from other memory as long as it exists."""
    return tuple([
        _places(each) if isinstance(each, tuple)
        else (address(each), each.shape, each.strides, each.dtype)
        if isinstance(each, np.ndarray) else id(each)
        for each in fields
    ])  # fmt: skip
