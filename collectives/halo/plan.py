"""The plan of ghosts: what every rank agrees on at initialization, and the program of a round.

The same plan serves both ways: ghosts are filled from their owners, or what has been gathered in
ghosts is brought to the owners and combined with what is there (the adjoint). A parcel
(:mod:`.parcels`) takes one of three ways, which its receiver chooses:

========  =========================================================================================
store     straight into the ghosts, where the field lies in memory from :func:`~..memory.empty`
staged    stored into one of two slots of the receiver's on the node, from where it is unpacked:
          short ones, those into plain memory, and those that are combined
message   packed, and sent by a persistent message: between nodes
========  =========================================================================================

On the node every parcel has a counter at its receiver, which tells the last round that has come.
Ghosts that are stored into belong to the peers from ``Start`` on: a *credit*, a counter at the
sender, tells it so. A slot needs none: who writes slot k % 2 in round k has seen the peer's data of
round k - 1, which the peer sent when it had done with round k - 2; only where nothing goes the
other way does the credit take the part of these data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import debug, progress
from onesided.collectives.agreement import agree, agreed, largest, swapped
from onesided.collectives.arena import ControlMemory, cell_of
from onesided.collectives.context import Context, Resources
from onesided.collectives.errors import ResourceError, UnsupportedError
from onesided.collectives.halo.faces import Face
from onesided.collectives.halo.parcels import (
    FacesOf,
    Field,
    Parcel,
    make_parcels,
    match,
    read_fields,
)
from onesided.collectives.hints import MANUAL, Hints
from onesided.collectives.initialization import Info
from onesided.collectives.memory import ALIGNMENT, aligned, find_region, region_with_key
from onesided.collectives.pattern import pieces as in_messages
from onesided.collectives.program import Chain, Plan, address, call, copy, tell, wait_for

STORE, STAGED, MESSAGE = ("store", "staged", "message")

#: Bytes of a parcel up to which it is staged: two short copies cost less than a credit, which the
#: rank that comes first waits for, with the help of a thread where it computes meanwhile.
SHORT = 1 << 13

#: What is done with what has come for an owner: a ufunc, as in ``combine(own, come, out=own)``.
Combine = Callable[..., Any]

#: Something to be copied, or called, where a round begins or ends.
Fill = tuple[NDArray[Any], NDArray[Any]] | Callable[[], object]


#: By level, and part of a parcel: a region by its key, the segment, the offset there, the strides.
Stores = tuple[tuple[tuple[str, int, int, tuple[int, ...]], ...], ...]


@dataclass(frozen=True)
class Advert:
    """Where a parcel is wanted: its counter, and where its parts go, by level or slot.

    Offsets are in bytes of the receiver's control memory, or of its segment of a region.
    """

    path: str
    cell: int = 0
    slots: tuple[int, ...] = ()
    stores: Stores = ()


@dataclass(eq=False)
class Ghosts:
    """The plan on one rank; ``plans`` is the program by turn, ``waits``: a round may have to wait
    before all of it has left."""

    resources: Resources
    hints: Hints
    number: int
    tags: list[int]
    fields: tuple[Field, ...]
    out: list[Parcel]
    into: list[Parcel]
    plans: list[Plan] = field(default_factory=list)
    waits: bool = False

    @property
    def context(self) -> Context:
        """The communicator's."""
        return self.resources.context

    @property
    def turns(self) -> int:
        """Rounds after which everything is as before: slots and levels take turns."""
        return math.lcm(2, *(len(each.levels) for each in self.fields))

    @property
    def faces(self) -> tuple[Face, ...]:
        """The faces of the first field."""
        return self.fields[0].faces


def initialize(
    comm: MPI.Comm, fields: Any, faces_of: FacesOf,
    info: Info = None,
    fills: Callable[[], Sequence[Sequence[Fill]]] | None = None,
    combine: Combine | None = None, empties: Any = None,
) -> Ghosts:
    """Collective. The plan, with its program.

    ``combine``: what comes from the ghosts is combined with what their owners have, and
    ``empties`` (None: nothing) is left in the ghosts. ``fills`` are done, by turn, where all has
    come, or with ``combine`` before anything leaves.
    """
    context = Context.of(comm)
    hints = Hints()
    with agreed(context.comm):
        hints = Hints.of(info)
        mine = read_fields(fields, faces_of)
    back = combine is not None
    levels = [len(field.levels) for field in mine]
    agree(context.comm, None, ("HaloExchange", len(mine), levels, back, hints.ranks_per_node))
    node = context.node(hints.ranks_per_node)
    if back:
        mine = tuple(Field(f.levels, tuple(face.back for face in f.faces)) for f in mine)
    match(context, mine)
    number = context.next_tag()
    out, into = make_parcels(mine, True), make_parcels(mine, False)
    most = largest(context.comm, None, ("parcels", number), [max(len(out), len(into))])[0]
    resources = Resources(context)
    ghosts = Ghosts(resources, hints, number, context.take_tags(most), mine, out, into)
    for each in mine:
        for level in each.levels:
            resources.keep.append(level)
            region = find_region(level)
            if region is not None:
                resources.use(region)
    try:
        near: Mapping[int, int] = node.rank_of
        try:
            made = _Layout(ghosts, near, back)
        except ResourceError:  # on every rank: messages into plain memory
            made = _Layout(ghosts, {}, back)
        with agreed(context.comm, ("connected", number)):
            made.connect()
            _check_progress(ghosts)
            _connect_messages(ghosts, made)
            filled = fills() if fills is not None else [[]] * ghosts.turns
            ghosts.plans = [_program(ghosts, made, turn, combine, empties, filled[turn])
                            for turn in range(ghosts.turns)]
    except Exception:
        resources.release()
        raise
    return ghosts


def _check_progress(ghosts: Ghosts) -> None:
    """Local. Raise :class:`UnsupportedError` where nobody could send a later stage in time."""
    parcels = (*ghosts.out, *ghosts.into)
    late = any(parcel.stage for parcel in parcels) and any(p.path == MESSAGE for p in parcels)
    if late and ghosts.hints.progress != MANUAL and not progress.may_call_from_any_thread():
        raise UnsupportedError(
            'corners="axes" sends between Start and Wait, for which it needs MPI_THREAD_MULTIPLE '
            'between nodes; use corners="direct", or promise by info progress=manual that no rank '
            "waits for another outside of this library's calls"
        )


# -- memory ---------------------------------------------------------------------------------------


class _Layout:
    """Collective. Control memory, and what every rank has told its peers about it.

    The control memory of a rank is [credits of its peers | counters of its parcels | slots].
    """

    def __init__(self, ghosts: Ghosts, near: Mapping[int, int], back: bool) -> None:
        self.ghosts, self._near = ghosts, near
        self.context = context = ghosts.context
        self._me = context.comm.rank
        out = {parcel.peer for parcel in ghosts.out}
        into = {parcel.peer for parcel in ghosts.into}
        self.peers = sorted((out | into) - {self._me})
        sources = [peer for peer in self.peers if peer in near]
        self._credit_at = {peer: n * ALIGNMENT for n, peer in enumerate(sources)}
        self._wanted: dict[Parcel, Advert] = {}
        size, error = len(sources) * ALIGNMENT, None
        try:
            for parcel in ghosts.into:
                if parcel.peer != self._me:
                    size = self._want(parcel, size, back)
        except Exception as problem:
            error = problem
        self._control = ControlMemory(ghosts, ghosts.resources, size, error=error)
        self._control.root[:] = 0
        self.credits = {peer: cell_of(self._control.root, at)
                        for peer, at in self._credit_at.items()}
        words: dict[int, Any] = {}
        for peer in self.peers:
            wanted = [advert for parcel, advert in self._wanted.items() if parcel.peer == peer]
            words[peer] = (self._control.place, self._credit_at.get(peer, 0), wanted)
        self._heard = swapped(context.comm, ghosts.number, words)
        self._control.hear({peer: word[0] for peer, word in self._heard.items()})
        self.grants: list[NDArray[np.int64]] = []
        self.one_way: set[int] = {peer for peer in out - into if peer in near}
        self.buffers: dict[Parcel, NDArray[np.uint8]] = {}

    def _want(self, parcel: Parcel, size: int, back: bool) -> int:
        """Local. Take room for what comes behind ``size`` bytes; how many there are then."""
        at, slots, stores = size, [], None
        parcel.path = MESSAGE
        if parcel.peer in self._near:
            if not back and parcel.room > SHORT:
                stores = self._stores(parcel)
            parcel.path = STAGED if stores is None else STORE
            size += ALIGNMENT
        if parcel.path == STAGED:
            room = aligned(parcel.room)
            slots = [size, size + room]
            size += 2 * room
        self._wanted[parcel] = Advert(parcel.path, at, tuple(slots), stores or ())
        return size

    def _stores(self, parcel: Parcel) -> Stores | None:
        """Where the ghosts are that the peer can store into; None where it does not see some."""
        found = []
        for level in parcel.parts:
            places = []
            for view in level:
                region = find_region(view)
                if region is None or not region.seen_by(self.context, parcel.peer):
                    return None
                places.append((region.key, region.node.comm.rank, address(view) - region.address,
                               view.strides))
            found.append(tuple(places))
        return tuple(found)

    def connect(self) -> None:
        """Local. Every parcel learns where it goes, or from where it is unpacked."""
        adverts = {peer: iter(self._heard[peer][2]) for peer in self.peers}
        granted = set()
        for parcel in self.ghosts.into:
            if parcel.peer == self._me:
                continue
            advert = self._wanted[parcel]
            self._place(parcel, advert, self._control.root)
            one_way = not any(p.peer == parcel.peer for p in self.ghosts.out)
            if parcel.path == STORE or (parcel.path == STAGED and one_way):
                granted.add(parcel.peer)
        for parcel in self.ghosts.out:
            if parcel.peer == self._me:
                continue
            advert = next(adverts[parcel.peer])
            parcel.path = advert.path
            near = parcel.path != MESSAGE
            self._place(parcel, advert, self._control.part(parcel.peer) if near else None)
            if parcel.path == STORE:
                levels = [self._targets(parcel, stores) for stores in advert.stores]
                parcel.places = [levels[turn % len(levels)] for turn in range(self.ghosts.turns)]
        self.grants = [self._control.cell(peer, self._heard[peer][1]) for peer in sorted(granted)]

    def _place(self, parcel: Parcel, advert: Advert, memory: NDArray[np.uint8] | None) -> None:
        """The counter of a parcel in the receiver's control ``memory``, and where it lies by turn,
        but where it is stored into ghosts."""
        if memory is None or parcel.path == MESSAGE:
            self.buffers[parcel] = np.zeros(parcel.room, np.uint8)
            slots = [parcel.packed(self.buffers[parcel])]
        else:
            parcel.cell = cell_of(memory, advert.cell)
            slots = [parcel.packed(memory[at:]) for at in advert.slots]
        if slots:
            parcel.places = [slots[turn % len(slots)] for turn in range(self.ghosts.turns)]

    @staticmethod
    def _targets(parcel: Parcel, stores: Sequence[Any]) -> list[NDArray[Any]]:
        found = []
        for part, (key, segment, offset, strides) in zip(parcel.parts[0], stores, strict=True):
            region = region_with_key(key)
            if region is None:
                raise ResourceError(f"the memory of rank {parcel.peer} is not visible")
            memory = region.part(segment)
            found.append(np.ndarray(part.shape, part.dtype, memory, offset, strides))
        return found


# -- the program ----------------------------------------------------------------------------------


def _program(
    ghosts: Ghosts, layout: _Layout, turn: int, combine: Combine | None, empties: Any,
    fills: Sequence[Fill],
) -> Plan:
    """What a round of this turn consists of.

    The chains: credits; what is stored or sent, by parcel; what comes, by parcel. Where something
    has to be done when all is there, and where parcels are combined, in an order that does not
    depend on who is faster, what comes is one chain. Where there are stages, everything is.
    """
    me = layout.context.comm.rank
    stages = sorted({parcel.stage for parcel in (*ghosts.out, *ghosts.into)})
    together = len(stages) > 1 or bool(fills) or combine is not None
    first: Chain = [*_poisoned(ghosts, turn, combine), *map(tell, layout.grants)]
    if combine is not None:
        first = [*_steps(fills), *first]
    chains: Plan = [first]
    come: Chain = []
    left: Chain = []  # what tells that messages have left
    for stage in stages:
        for parcel in ghosts.out:
            if parcel.stage != stage:
                continue
            chain, kept = _leaving(ghosts, layout, parcel, turn, combine, empties)
            come += kept
            if len(stages) > 1:
                come += chain
                left += _left(parcel)
            elif chain:
                parcel.chain = len(chains)
                chains.append(chain + _left(parcel))
        for parcel in ghosts.into:
            if parcel.peer == me or parcel.stage != stage:  # moved where it leaves
                continue
            chain = _coming(parcel, turn, combine, first if together else None)
            if together:
                come += chain
                continue
            parcel.chain = len(chains)
            chains.append(chain)
    come += left
    if combine is None:
        come += _steps(fills, True)
    for parcel in (*ghosts.into, *ghosts.out):
        if parcel.chain < 0:
            parcel.chain = len(chains)
    ghosts.waits |= len(stages) > 1
    chains.append(come)
    return chains


def _leaving(
    ghosts: Ghosts, layout: _Layout, parcel: Parcel, turn: int, combine: Combine | None,
    empties: Any,
) -> tuple[Chain, Chain]:
    """What sends a parcel, as a chain of its own; and what is done here, where all comes."""
    me = layout.context.comm.rank
    chain: Chain = []
    level = parcel.parts[turn % len(parcel.parts)]
    if parcel.peer == me:
        mirror = next(p for p in ghosts.into if (p.peer, p.stage) == (me, parcel.stage))
        moves = list(_moves(mirror.parts[turn % len(mirror.parts)], level, combine))
        return [], moves + _emptied(level, empties)
    if parcel.path == STORE:
        chain.append(wait_for(layout.credits[parcel.peer]))
    elif parcel.path == STAGED and parcel.peer in layout.one_way:
        chain.append(wait_for(layout.credits[parcel.peer], 1, -1))
    ghosts.waits |= bool(chain)
    chain += [copy(*move) for move in zip(parcel.places[turn], level, strict=True)]
    chain += _emptied(level, empties)
    if parcel.path == MESSAGE:
        chain.append(call(partial(MPI.Prequest.Startall, parcel.messages), once=True))
    else:
        chain.append(tell(parcel.cell))
    return chain, []


def _left(parcel: Parcel) -> Chain:
    """What completes the messages of a parcel, if it has any."""
    if parcel.path != MESSAGE:
        return []
    return [call(partial(MPI.Prequest.Testall, parcel.messages), False)]


def _coming(
    parcel: Parcel, turn: int, combine: Combine | None, first: Chain | None
) -> Chain:
    """What receives a parcel; receives are posted in the ``first`` chain, if one is given."""
    chain: Chain = []
    if parcel.path == MESSAGE:
        start = call(partial(MPI.Prequest.Startall, parcel.messages), False, once=True)
        (chain if first is None else first).append(start)
        chain += _left(parcel)
    else:
        chain.append(wait_for(parcel.cell))
    if parcel.path != STORE:
        chain += _moves(parcel.parts[turn % len(parcel.parts)], parcel.places[turn], combine)
    return chain


def _poisoned(ghosts: Ghosts, turn: int, combine: Combine | None) -> Chain:
    """What spoils ghosts that are given up, where that is wanted."""
    if combine is not None or not debug.enabled():
        return []
    parts = [part for parcel in ghosts.into for part in parcel.parts[turn % len(parcel.parts)]]
    return [copy(part, np.broadcast_to(debug.poison(part.dtype), part.shape)) for part in parts]


def _moves(
    targets: Sequence[NDArray[Any]], sources: Sequence[NDArray[Any]], combine: Combine | None
) -> Iterator[Any]:
    for target, source in zip(targets, sources, strict=True):
        if combine is None:
            yield copy(target, source)
        else:
            yield call(partial(_combined, combine, target, source), False)


def _combined(combine: Combine, target: NDArray[Any], source: NDArray[Any]) -> None:
    with np.errstate(all="ignore"):  # infinities and NaN pass, on all ranks alike
        combine(target, source, out=target)


def _emptied(parts: Sequence[NDArray[Any]], empties: Any) -> Chain:
    """What is left in ghosts that have been given away."""
    if empties is None:
        return []
    return [copy(part, np.broadcast_to(np.array(empties, part.dtype), part.shape))
            for part in parts]


def _steps(fills: Sequence[Fill], last: bool = False) -> Chain:
    """What is ``last`` is called by Wait and Test of the request alone: it may be the caller's."""
    return [call(partial(_run, fill), False, blocks=last, once=True) if callable(fill)
            else copy(*fill) for fill in fills]


def _run(fill: Callable[[], object]) -> None:
    """Once, whatever the function answers."""
    fill()


def _connect_messages(ghosts: Ghosts, layout: _Layout) -> None:
    """The persistent messages; parcels of a pair have tags in their order."""
    comm = layout.context.comm
    for parcels, make in ((ghosts.out, comm.Send_init), (ghosts.into, comm.Recv_init)):
        count: dict[int, int] = {}
        for parcel in parcels:
            if parcel.path != MESSAGE:
                continue
            tag = ghosts.tags[count.get(parcel.peer, 0)]
            count[parcel.peer] = count.get(parcel.peer, 0) + 1
            parcel.messages = [make([piece, MPI.BYTE], parcel.peer, tag)
                               for piece in in_messages(layout.buffers[parcel])]
            for message in parcel.messages:
                ghosts.resources.on_release(message.Free, True)
    ghosts.resources.keep += layout.buffers.values()
