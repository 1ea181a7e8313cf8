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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from onesided.collectives.halo.parcels import (
    MESSAGE,
    STAGED,
    STORE,
    Advert,
    FacesOf,
    Field,
    Parcel,
    Stores,
    make_parcels,
    match,
    read_fields,
)
from onesided.collectives.hints import MANUAL, Hints
from onesided.collectives.initialization import Info
from onesided.collectives.memory import (
    ALIGNMENT,
    aligned,
    find_region,
    hold,
    region_with_key,
)
from onesided.collectives.pattern import pieces as in_messages
from onesided.collectives.program import Chain, Plan, address, call, copy, tell, wait_for

#: Bytes of a parcel up to which it is staged: two short copies cost less than a credit, which the
#: rank that comes first waits for, with the help of a thread where it computes meanwhile.
SHORT = 1 << 13

#: What is done with what has come for an owner: a ufunc, as in ``combine(own, come, out=own)``.
Combine = Callable[..., Any]

#: Something to be copied, or called, where a round begins or ends.
Fill = tuple[NDArray[Any], NDArray[Any]] | Callable[[], object]


class Ghosts:
    """The plan on one rank; ``plans`` is the program by turn, ``waits``: a round may have to wait
    before all of it has left.

    The control memory of a rank is [credits of its peers | counters of its parcels | slots].
    """

    def __init__(
        self, comm: MPI.Comm, fields: Any, faces_of: FacesOf, info: Info = None,
        fills: Callable[[], Sequence[Sequence[Fill]]] | None = None,
        combine: Combine | None = None, empties: Any = None,
    ) -> None:
        """Collective. With ``combine`` what comes from the ghosts is combined with what their
        owners have, and ``empties`` (None: nothing) is left in the ghosts. ``fills`` are done, by
        turn, where all has come, or with ``combine`` before anything leaves."""
        self.context = context = Context.of(comm)
        self._me = context.comm.rank
        self._combine, self._empties = combine, empties
        back = combine is not None
        self.hints = Hints()
        self.fields: tuple[Field, ...] = ()
        with agreed(context.comm):
            self.hints = Hints.of(info)
            self.fields = read_fields(fields, faces_of)
        levels = [len(each.levels) for each in self.fields]
        ranks_per_node = self.hints.ranks_per_node
        agree(context.comm, None, ("HaloExchange", len(levels), levels, back, ranks_per_node))
        node = context.node(ranks_per_node)
        if back:
            self.fields = tuple(
                Field(f.levels, tuple(face.back for face in f.faces)) for f in self.fields)
        match(context, self.fields)
        self.number = context.next_tag()
        self.out, self.into = make_parcels(self.fields, True), make_parcels(self.fields, False)
        counts = [max(len(self.out), len(self.into))]
        most = largest(context.comm, None, ("parcels", self.number), counts)[0]
        self.tags = context.take_tags(most)
        self.turns = math.lcm(2, *levels)  # then all is as before: slots and levels take turns
        self.waits = False
        self.resources = Resources(context)
        for each in self.fields:
            for level in each.levels:
                self.resources.keep.append(level)
                hold(self.resources, level)
        try:
            try:
                self._lay_out(node.rank_of)
            except ResourceError:  # on every rank: messages into plain memory
                self._lay_out({})
            with agreed(context.comm, ("connected", self.number)):
                self._connect()
                self._check_progress()
                self._connect_messages()
                filled = [[]] * self.turns if fills is None else fills()
                self.plans = [self._program(turn, filled[turn]) for turn in range(self.turns)]
        except Exception:
            self.resources.release()
            raise
        del self._control, self._heard, self._credits, self._grants  # the program has them

    # -- memory -----------------------------------------------------------------------------------

    def _lay_out(self, near: Mapping[int, int]) -> None:
        """Collective. Take control memory, and tell peers about it; those that are ``near`` share
        memory with this rank."""
        self._sends_to = {parcel.peer for parcel in self.out} - {self._me}
        self._hears_from = {parcel.peer for parcel in self.into} - {self._me}
        peers = sorted(self._sends_to | self._hears_from)
        credit_at = {peer: n * ALIGNMENT for n, peer in enumerate(p for p in peers if p in near)}
        size, error = len(credit_at) * ALIGNMENT, None
        try:
            for parcel in self.into:
                if parcel.peer != self._me:
                    size = self._want(parcel, near, size)
        except Exception as problem:
            error = problem
        self._control = ControlMemory(self, self.resources, size, error=error)
        self._control.root[:] = 0
        self._credits = {peer: cell_of(self._control.root, at) for peer, at in credit_at.items()}
        words = {}
        for peer in peers:
            wanted = [parcel.advert for parcel in self.into if parcel.peer == peer]
            words[peer] = (self._control.place, credit_at.get(peer, 0), wanted)
        self._heard = swapped(self.context.comm, self.number, words)
        self._control.hear({peer: word[0] for peer, word in self._heard.items()})

    def _want(self, parcel: Parcel, near: Mapping[int, int], size: int) -> int:
        """Local. Take room for what comes behind ``size`` bytes; how many there are then."""
        at, room, stores = size, aligned(parcel.room), None
        if parcel.peer not in near:
            parcel.advert = Advert(MESSAGE)
            return size
        if self._combine is None and parcel.room > SHORT:
            stores = self._stores(parcel)
        size += ALIGNMENT
        if stores is not None:
            parcel.advert = Advert(STORE, at, (), stores)
            return size
        parcel.advert = Advert(STAGED, at, (size, size + room))
        return size + 2 * room

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

    def _connect(self) -> None:
        """Local. Every parcel learns where it goes, or from where it is unpacked."""
        adverts = {peer: iter(word[2]) for peer, word in self._heard.items()}
        for parcel in self.into:
            if parcel.peer != self._me:
                self._place(parcel, self._control.root)
        for parcel in self.out:
            if parcel.peer == self._me:
                continue
            parcel.advert = next(adverts[parcel.peer])
            self._place(parcel, None if parcel.path == MESSAGE else self._control.part(parcel.peer))
            if parcel.path == STORE:
                parcel.places = [_targets(parcel, stores) for stores in parcel.advert.stores]
        granted = {parcel.peer for parcel in self.into if parcel.path == STORE or (
            parcel.path == STAGED and parcel.peer not in self._sends_to)}
        self._grants = [self._control.cell(peer, self._heard[peer][1]) for peer in sorted(granted)]

    def _place(self, parcel: Parcel, memory: NDArray[np.uint8] | None) -> None:
        """Local. The counter of a parcel in the receiver's control ``memory``, and where it lies,
        but where it is stored into ghosts."""
        if memory is None or parcel.path == MESSAGE:
            parcel.buffer = np.zeros(parcel.room, np.uint8)
            parcel.places = [parcel.packed(parcel.buffer)]
        else:
            parcel.cell = cell_of(memory, parcel.advert.cell)
            parcel.places = [parcel.packed(memory[at:]) for at in parcel.advert.slots]

    def _connect_messages(self) -> None:
        """Local. The persistent messages; parcels of a pair have tags in their order."""
        comm = self.context.comm
        for parcels, make in ((self.out, comm.Send_init), (self.into, comm.Recv_init)):
            used: Counter[int] = Counter()
            for parcel in parcels:
                if parcel.path != MESSAGE:
                    continue
                tag = self.tags[used[parcel.peer]]
                used[parcel.peer] += 1
                parcel.messages = [make([piece, MPI.BYTE], parcel.peer, tag)
                                   for piece in in_messages(parcel.buffer)]
                for message in parcel.messages:
                    self.resources.on_release(message.Free, True)
                self.resources.keep.append(parcel.buffer)

    def _check_progress(self) -> None:
        """Local. Raise :class:`UnsupportedError` where nobody could send a later stage in time."""
        parcels = (*self.out, *self.into)
        late = any(parcel.stage for parcel in parcels) and any(p.path == MESSAGE for p in parcels)
        if late and self.hints.progress != MANUAL and not progress.may_call_from_any_thread():
            raise UnsupportedError(
                'corners="axes" sends between Start and Wait, for which it needs '
                'MPI_THREAD_MULTIPLE between nodes; use corners="direct", or promise by info '
                "progress=manual that no rank waits for another outside of this library's calls"
            )

    # -- the program ------------------------------------------------------------------------------

    def _program(self, turn: int, fills: Sequence[Fill]) -> Plan:
        """Local. What a round of this turn consists of.

        The chains: credits; what is stored or sent, by parcel; what comes, by parcel. Where
        something has to be done when all is there, and where parcels are combined, in an order that
        does not depend on who is faster, what comes is one chain. Where there are stages,
        everything is.
        """
        back = self._combine is not None
        stages = sorted({parcel.stage for parcel in (*self.out, *self.into)})
        staged = len(stages) > 1
        together = staged or bool(fills) or back
        self.waits |= staged
        before, after = ([*_steps(fills)], []) if back else ([], [*_steps(fills, last=True)])
        first: Chain = [*before, *self._poisoned(turn), *map(tell, self._grants)]
        chains: Plan = [first]
        come: Chain = []
        left: Chain = []  # what tells that messages have left
        for stage in stages:
            for parcel in self.out:
                if parcel.stage != stage:
                    continue
                if parcel.peer == self._me:
                    come += self._kept(parcel, turn)
                elif staged:
                    come += self._leaving(parcel, turn)
                    left += _left(parcel)
                else:
                    chains.append(self._leaving(parcel, turn) + _left(parcel))
            for parcel in self.into:
                if parcel.peer == self._me or parcel.stage != stage:
                    continue
                post, chain = self._coming(parcel, turn)
                if together:
                    first += post
                    come += chain
                else:
                    parcel.chain = len(chains)
                    chains.append(post + chain)
        chains.append(come + left + after)
        return chains

    def _kept(self, parcel: Parcel, turn: int) -> Chain:
        """What moves a parcel of this rank to itself."""
        level = parcel.level(turn)
        mirror = next(p for p in self.into if (p.peer, p.stage) == (parcel.peer, parcel.stage))
        return [*self._moves(mirror.level(turn), level), *self._emptied(level)]

    def _leaving(self, parcel: Parcel, turn: int) -> Chain:
        """What sends a parcel."""
        chain: Chain = []
        level = parcel.level(turn)
        if parcel.path == STORE:
            chain.append(wait_for(self._credits[parcel.peer]))
        elif parcel.path == STAGED and parcel.peer not in self._hears_from:
            chain.append(wait_for(self._credits[parcel.peer], 1, -1))
        self.waits |= bool(chain)
        chain += [copy(*move) for move in zip(parcel.place(turn), level, strict=True)]
        chain += self._emptied(level)
        if parcel.path == MESSAGE:
            chain.append(call(partial(MPI.Prequest.Startall, parcel.messages), once=True))
        else:
            chain.append(tell(parcel.cell))
        return chain

    def _coming(self, parcel: Parcel, turn: int) -> tuple[Chain, Chain]:
        """What posts the receives of a parcel, and what receives it."""
        if parcel.path == STORE:
            return [], [wait_for(parcel.cell)]
        moves = list(self._moves(parcel.level(turn), parcel.place(turn)))
        if parcel.path == STAGED:
            return [], [wait_for(parcel.cell), *moves]
        post = call(partial(MPI.Prequest.Startall, parcel.messages), False, once=True)
        return [post], [*_left(parcel), *moves]

    def _poisoned(self, turn: int) -> Chain:
        """What spoils ghosts that are given up, where that is wanted."""
        if self._combine is not None or not debug.enabled():
            return []
        parts = [part for parcel in self.into for part in parcel.level(turn)]
        return [copy(part, np.broadcast_to(debug.poison(part.dtype), part.shape))
                for part in parts]

    def _moves(
        self, targets: Sequence[NDArray[Any]], sources: Sequence[NDArray[Any]]
    ) -> Iterator[Any]:
        for target, source in zip(targets, sources, strict=True):
            if self._combine is None:
                yield copy(target, source)
            else:
                yield call(partial(_combined, self._combine, target, source), False)

    def _emptied(self, parts: Sequence[NDArray[Any]]) -> Chain:
        """What is left in ghosts that have been given away."""
        if self._empties is None:
            return []
        return [copy(part, np.broadcast_to(np.array(self._empties, part.dtype), part.shape))
                for part in parts]


def _targets(parcel: Parcel, stores: Sequence[Any]) -> list[NDArray[Any]]:
    """Local. The ghosts that the parts of a parcel are stored into."""
    found = []
    for part, (key, segment, offset, strides) in zip(parcel.parts[0], stores, strict=True):
        region = region_with_key(key)
        if region is None:
            raise ResourceError(f"the memory of rank {parcel.peer} is not visible")
        memory = region.part(segment)
        found.append(np.ndarray(part.shape, part.dtype, memory, offset, strides))
    return found


def _left(parcel: Parcel) -> Chain:
    """What completes the messages of a parcel, if it has any."""
    if parcel.path != MESSAGE:
        return []
    return [call(partial(MPI.Prequest.Testall, parcel.messages), False)]


def _combined(combine: Combine, target: NDArray[Any], source: NDArray[Any]) -> None:
    with np.errstate(all="ignore"):  # infinities and NaN pass, on all ranks alike
        combine(target, source, out=target)


def _steps(fills: Sequence[Fill], last: bool = False) -> Chain:
    """What is ``last`` is called by Wait and Test of the request alone: it may be the caller's."""
    return [call(partial(_run, fill), False, blocks=last, once=True) if callable(fill)
            else copy(*fill) for fill in fills]


def _run(fill: Callable[[], object]) -> None:
    """Once, whatever the function answers."""
    fill()
