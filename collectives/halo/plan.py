"""The plan of ghosts: what every rank agrees on at initialization, and the program of a round.

The same plan serves both ways: ghosts are filled from their owners, or what has been gathered in
ghosts is brought to the owners and combined with what is there (the adjoint). The boxes that a rank
sends to another one in one stage are one *parcel*. It takes one of three ways, which its receiver
chooses:

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import debug, progress
from onesided.collectives.agreement import agree, agreed, told
from onesided.collectives.arena import ControlMemory, cell_of
from onesided.collectives.buffers import overlap
from onesided.collectives.context import Context, Resources
from onesided.collectives.errors import PatternError, ResourceError, UnsupportedError
from onesided.collectives.halo.faces import Face
from onesided.collectives.hints import MANUAL, Hints
from onesided.collectives.initialization import Info
from onesided.collectives.memory import ALIGNMENT, aligned, find_region, hold, region_with_key
from onesided.collectives.pattern import pieces as in_messages
from onesided.collectives.steps import Chain, Plan, address, call, copy, tell, wait_for

#: Bytes of a parcel up to which it is staged: two short copies cost less than a credit, which the
#: rank that comes first waits for, with the help of a thread where it computes meanwhile.
SHORT = 1 << 13

#: What is done with what has come for an owner: a ufunc, as in ``combine(own, come, out=own)``.
Combine = Callable[..., Any]

#: Something to be copied, or called, where a round begins or ends.
Fill = tuple[NDArray[Any], NDArray[Any]] | Callable[[], object]

#: The faces of the block that an array shows; it is that of the field of this number.
FacesOf = Callable[[NDArray[Any], int], Iterable[Face]]

#: The ways of a parcel.
STORE, STAGED, MESSAGE = ("store", "staged", "message")

#: Alignment of the parts of a parcel, in bytes.
PART = 16


@dataclass(frozen=True)
class Field:
    """Arrays of one form that take turns, round by round, and the faces of their block."""

    levels: tuple[NDArray[Any], ...]
    faces: tuple[Face, ...]


#: What goes through a face, and how errors call that.
Form = tuple[tuple[int, ...], np.dtype[Any], str]

#: By the key of the face and the number of the field.
Forms = dict[tuple[Any, int], Form]

#: By level, and part of a parcel: a region by its key, the segment, the offset there, the strides.
Stores = tuple[tuple[tuple[str, int, int, tuple[int, ...]], ...], ...]


@dataclass(frozen=True)
class Advert:
    """How and where a parcel is wanted: its counter, and where its parts go, by slot or level, in
    bytes of the receiver's control memory, or of its segment of a region."""

    path: str = ""
    cell: int = 0
    slots: tuple[int, ...] = ()
    stores: Stores = ()


@dataclass(eq=False)
class Parcel:
    """What goes to, or comes from, one rank at a time, in one stage.

    ``parts`` are views of the fields, by level, of these ``forms``. What follows is known when the
    receiver has told: ``places`` where a part goes or lies, in turn; ``cell`` the counter, or the
    ``messages`` of a buffer; and ``chain``, its place in the program.
    """

    peer: int
    stage: int
    parts: list[list[NDArray[Any]]]
    forms: Forms = field(default_factory=dict)
    advert: Advert = Advert()
    places: list[list[NDArray[Any]]] = field(default_factory=list)
    cell: Any = None
    messages: list[MPI.Prequest] = field(default_factory=list)
    chain: int = -1

    @property
    def path(self) -> str:
        """The way it takes; "" from a rank to itself."""
        return self.advert.path

    def level(self, turn: int) -> list[NDArray[Any]]:
        """Local. The parts in a round."""
        return self.parts[turn % len(self.parts)]

    def place(self, turn: int) -> list[NDArray[Any]]:
        """Local. Where they go to or come from in a round."""
        return self.places[turn % len(self.places)]

    @property
    def room(self) -> int:
        """Bytes, with every part where it can be aligned."""
        return sum(_room(part) for part in self.parts[0])

    def packed(self, memory: NDArray[np.uint8]) -> list[NDArray[Any]]:
        """Local. The parts in memory of that size."""
        found, start = [], 0
        for part in self.parts[0]:
            found.append(np.ndarray(part.shape, part.dtype, memory, start))
            start += _room(part)
        return found


def _room(part: NDArray[Any]) -> int:
    return -(-part.size * part.itemsize // PART) * PART


def read_fields(fields: Any, faces_of: FacesOf) -> tuple[Field, ...]:
    """Local. The fields with their faces; raises :class:`PatternError`."""
    if not isinstance(fields, list) or not fields:
        raise PatternError(f"a halo needs a NumPy array, not {type(fields).__name__}")
    found = []
    for number, entry in enumerate(fields):
        levels = tuple(entry) if isinstance(entry, tuple) and entry else (entry,)
        for level in levels:
            _check(level)
            form, first = (level.shape, level.dtype), (levels[0].shape, levels[0].dtype)
            if form != first:
                raise PatternError(f"arrays of {form} and {first} cannot take turns")
        faces = tuple(faces_of(levels[0], number))
        found.append(Field(tuple(np.asarray(level) for level in levels), faces))
    every = [level for each in found for level in each.levels]
    for number, level in enumerate(every):
        if any(overlap(level, other) for other in every[:number]):
            raise PatternError("two arrays of one halo share memory")
    return tuple(found)


def _check(array: Any) -> None:
    if not isinstance(array, np.ndarray):
        raise PatternError(f"a halo needs a NumPy array, not {type(array).__name__}")
    if not array.ndim:
        raise PatternError("a halo needs an array of one axis at least")
    if array.dtype.hasobject or not array.dtype.itemsize:
        raise PatternError(f"dtype {array.dtype} has no fixed size that could be sent")
    if not array.flags.writeable:
        raise PatternError("the array cannot be written")


def make_parcels(fields: Sequence[Field], leaving: bool) -> list[Parcel]:
    """Local. What leaves through the faces, or comes, in an order that is the same on both sides of
    a pair, field by field: faces of one share pages and cache lines."""
    levels = math.lcm(*(len(each.levels) for each in fields))
    parcels: dict[tuple[int, int], Parcel] = {}
    for number, each in enumerate(fields):
        faces = each.faces if leaving else [face.back for face in each.faces]
        for face in sorted(faces, key=attrgetter("stage", "send_key")):
            views = [each.levels[turn % len(each.levels)][face.send] for turn in range(levels)]
            if not views[0].size:
                continue
            parcel = parcels.setdefault(
                (face.rank, face.stage), Parcel(face.rank, face.stage, [[] for _ in views]))
            name = f"direction {face.offset}" if face.offset else f"tag {face.send_key}"
            parcel.forms[(face.stage, face.send_key), number] = views[0].shape, views[0].dtype, name
            for part, view in zip(parcel.parts, views, strict=True):
                part.append(view)
    return list(parcels.values())


def match(me: int, into: Iterable[Parcel], heard: Mapping[int, Forms]) -> None:
    """Local. Raise :class:`PatternError`, naming the pair of ranks, where what ranks send is not
    what this one expects."""
    sent = {(rank, *where): form for rank, forms in heard.items() for where, form in forms.items()}
    wanted = {(each.peer, *where): form for each in into for where, form in each.forms.items()}
    for where in sorted(sent.keys() | wanted.keys(), key=repr):
        comes, expected = sent.get(where), wanted.get(where)
        if comes is None or expected is None or comes[:2] != expected[:2]:
            raise PatternError(f"rank {where[0]} sends {_words(comes)} to rank {me}, which expects "
                               f"{_words(expected)}")


def _words(form: Form | None) -> str:
    return "nothing" if form is None else "a box of shape {} of {} ({})".format(*form)


class Ghosts:
    """The plan on one rank; ``plans`` is the program by turn.

    The control memory of a rank is [credits of its peers | counters of its parcels | slots].
    """

    def __init__(
        self, comm: MPI.Comm, fields: Any, faces_of: FacesOf, info: Info = None,
        fills: Callable[[], Sequence[Sequence[Fill]]] | None = None,
        combine: Combine | None = None, empties: Any = None, *, built: Callable[[Ghosts], object],
    ) -> None:
        """Collective. With ``combine`` what comes from the ghosts is combined with what their
        owners have, and ``empties`` (None: nothing) is left in the ghosts. ``fills`` are done, by
        turn, where all has come, or with ``combine`` before anything leaves. What is ``built`` is
        given to a function, which may fail on one rank: then it raises on all."""
        self.context = context = Context.of(comm)
        self._me = context.comm.rank
        self._combine, self._empties = combine, empties
        back = combine is not None
        with agreed(context.comm):
            self.hints = Hints.of(info)
            debug.seconds()
            self.fields = read_fields(fields, faces_of)
        levels = [len(each.levels) for each in self.fields]
        ranks_per_node = self.hints.ranks_per_node
        agree(context.comm, None, ("HaloExchange", len(levels), levels, back, ranks_per_node))
        node = context.node(ranks_per_node)
        self.number = context.next_tag()
        self.out, self.into = (make_parcels(self.fields, leaving != back)
                               for leaving in (True, False))
        self.turns = math.lcm(2, *levels)  # then all is as before: slots and levels take turns
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
            with agreed(context.comm, "boxes of a halo"):
                match(self._me, self.into, {peer: word[3] for peer, word in self._heard.items()})
            with agreed(context.comm, ("connected", self.number)):
                self._connect()
                self._check_progress()
                filled = [[]] * self.turns if fills is None else fills()
                self.plans = [self._program(turn, filled[turn]) for turn in range(self.turns)]
                built(self)
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
        peers = sorted((self._sends_to | self._hears_from) & near.keys())
        credit_at = {peer: n * ALIGNMENT for n, peer in enumerate(peers)}
        size, error = len(credit_at) * ALIGNMENT, None
        try:
            for parcel in self.into:
                if parcel.peer != self._me:
                    size = self._want(parcel, near, size)
        except Exception as problem:
            error = problem
        stages = [1 + parcel.stage for parcel in (*self.out, *self.into)]
        self._control = ControlMemory(self, self.resources, size, [max(stages, default=0)], error)
        self.tags = self.context.take_tags(self._control.most[0])  # by stage
        self._control.root[:] = 0
        self._credits = {peer: cell_of(self._control.root, at) for peer, at in credit_at.items()}
        words = {}
        for peer in sorted({parcel.peer for parcel in (*self.out, *self.into)}):
            wanted = {each.stage: each.advert for each in self.into if each.peer == peer}
            forms = {where: form for each in self.out if each.peer == peer
                     for where, form in each.forms.items()}
            words[peer] = self._control.place, credit_at.get(peer, 0), wanted, forms
        self._heard = told(self.context.comm, self.number, words)

    def _want(self, parcel: Parcel, near: Mapping[int, int], at: int) -> int:
        """Local. How a parcel is to come, and where in the control memory, from ``at`` on; the end
        of what it takes there."""
        if parcel.peer not in near:
            parcel.advert = Advert(MESSAGE)
            return at
        start, room, stores = at + ALIGNMENT, aligned(parcel.room), None
        if self._combine is None and parcel.room > SHORT:
            stores = self._stores(parcel)
        if stores is not None:
            parcel.advert = Advert(STORE, at, (), stores)
            return start
        parcel.advert = Advert(STAGED, at, (start, start + room))
        return start + 2 * room

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
        self._control.hear({peer: word[0] for peer, word in self._heard.items()})
        for parcel in self.into:
            self._place(parcel, self._me, self.context.comm.Recv_init)
        for parcel in self.out:
            if parcel.peer != self._me:
                parcel.advert = self._heard[parcel.peer][2][parcel.stage]
            self._place(parcel, parcel.peer, self.context.comm.Send_init)
            if parcel.path == STORE:
                parcel.places = [_targets(parcel, stores) for stores in parcel.advert.stores]
        granted = {parcel.peer for parcel in self.into if parcel.path == STORE or (
            parcel.path == STAGED and parcel.peer not in self._sends_to)}
        self._grants = [self._control.cell(peer, self._heard[peer][1]) for peer in sorted(granted)]

    def _place(self, parcel: Parcel, owner: int, make: Callable[..., MPI.Prequest]) -> None:
        """Local. The counter of a parcel in the control memory of its receiver, the ``owner``, or
        its persistent messages; and where it lies, but where it is stored into ghosts."""
        if parcel.path == MESSAGE:
            buffer, tag = np.zeros(parcel.room, np.uint8), self.tags[parcel.stage]
            parcel.places = [parcel.packed(buffer)]
            parcel.messages = [make([piece, MPI.BYTE], parcel.peer, tag)
                               for piece in in_messages(buffer)]
            for message in parcel.messages:
                self.resources.on_release(message.Free, True)
            self.resources.keep.append(buffer)
        elif parcel.path:
            memory = self._control.part(owner)
            parcel.cell = cell_of(memory, parcel.advert.cell)
            parcel.places = [parcel.packed(memory[at:]) for at in parcel.advert.slots]

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
        """Local. The chains of a round: credits; what is stored or sent, by parcel; what comes, by
        parcel. Where something has to be done when all is there, and where parcels are combined, in
        an order that does not depend on who is faster, what comes is one chain. Where there are
        stages, everything is."""
        back = self._combine is not None
        stages = sorted({parcel.stage for parcel in (*self.out, *self.into)}, reverse=back)
        staged = len(stages) > 1
        together = staged or bool(fills) or back
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
        chain += [copy(*move) for move in zip(parcel.place(turn), level, strict=True)]
        chain += self._emptied(level)
        if parcel.path == MESSAGE:
            return [*chain, call(partial(MPI.Prequest.Startall, parcel.messages), once=True)]
        return [*chain, tell(parcel.cell)]

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
        return [copy(part, np.broadcast_to(debug.poison(part.dtype), part.shape)) for part in parts]

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
