"""How the two sides of a partitioned send find each other without a collective call.

Where a collective call of this package, such as ``empty``, has made a communicator of its own
before, the messages go over that. Else they go over the caller's, under the upper half of its tags;
a program that receives there with ``ANY_TAG`` takes what is not for it. Ranks may be before and
after such a call at the same time: each looks at both, and a pair uses the private one where both
sides had it.

Each side posts its :class:`Parameters`, nonblocking. Those of one pair, direction and tag are
matched in the order of initialization (MPI-4.1 section 4.2), so they carry their number in it. What
they come to is computed alike on both sides. A side that fails afterwards, when it makes its end of
the channel, tells the other one.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import portable
from onesided.collectives.buffers import simple
from onesided.collectives.context import Attachment
from onesided.collectives.errors import (
    OnesidedError,
    PatternError,
    RequestError,
    ResourceError,
    in_forked_child,
)
from onesided.collectives.hints import Hints
from onesided.collectives.initialization import Info
from onesided.collectives.memory import BOARD, find_region
from onesided.collectives.partitioned.counter import Grouping
from onesided.collectives.pattern import as_bytes
from onesided.collectives.program import fence

SENDER, RECEIVER = 0, 1

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Guard:
    """A lock under which no call is made inside of another one: one thread at a time is inside. A
    signal handler, or a step, that has interrupted what is inside is not let in, and does not wait
    for it either.

    ``run`` has the whole call in one frame: an exception of a handler leaves nothing taken.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.busy = False  # to be looked at by who has the lock

    def run(self, act: Callable[..., Any], *arguments: Any, **names: Any) -> Any:
        """Local. What ``act`` returns, from the inside.

        Raises :class:`RequestError` in the middle of another call, and in a forked child, where
        the lock may be that of a thread that is not there.
        """
        if in_forked_child():
            raise RequestError("partitioned sends belong to the parent of this forked child")
        with self.lock:
            if self.busy:
                self.refuse_inside()
            self.busy = True
            try:
                return act(*arguments, **names)
            finally:
                self.busy = False

    def refuse_inside(self) -> None:
        """Local. Raise :class:`RequestError` in the middle of another call of this thread."""
        if self.busy and self.lock._is_owned():  # type: ignore[attr-defined]
            raise RequestError("a partitioned send cannot be used in the middle of a call of "
                               "it, by a signal handler or a step")

    def attempt(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Local. The same; None where it raises for itself, and where another thread is inside.

        Only the main thread waits for that one. What it has interrupted may be inside of this, and
        it may want a lock that the caller has: others must not wait for it then.
        """
        if threading.current_thread() is threading.main_thread():
            with self.lock:  # an exception of a handler leaves nothing behind that this has taken
                return None if self.busy else self.run(act, *arguments)
        if not self.lock.acquire(blocking=False):
            return None
        try:  # it may be busy all the same: a finalizer can come in the middle of a call
            return None if self.busy else self.run(act, *arguments)
        finally:
            self.lock.release()


def guarded(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """The method, run inside of the ``guard`` of its object."""

    @functools.wraps(method)
    def inside(*arguments: Given.args, **names: Given.kwargs) -> Result:
        owner: Any = arguments[0]
        found: Result = owner.guard.run(method, *arguments, **names)
        return found

    return inside


@dataclass(frozen=True)
class Reach:
    """Where on their node the sender finds the receive buffer.

    ``key`` names the region ("": the sender does not see it), ``segment`` is the receiver's rank in
    its node, ``offset`` the place in its memory, ``board`` that of the receiver's board, and
    ``generation`` tells the channels that use it one after the other from each other. Places are
    in bytes.
    """

    key: str = ""
    segment: int = 0
    offset: int = 0
    board: int = 0
    generation: int = 0


@dataclass(frozen=True)
class Parameters:
    """What one side tells the other, once.

    ``kind`` is the type of the elements, ``method`` the name of a transport, or auto. Of a receive:
    ``slot`` is its number among those from this peer, and ``reach`` where its buffer is.
    """

    side: int
    tag: int
    nbytes: int
    kind: str
    partitions: int
    aggregate: int
    method: str
    slot: int = 0
    reach: Reach = field(default=Reach())

    @property
    def grouping(self) -> Grouping:
        """The groups that this side makes as the sender."""
        return Grouping.of(self.partitions, self.nbytes, self.aggregate)


def check_fit(sender: Parameters, receiver: Parameters, source: int, dest: int) -> None:
    """Local, the same on both sides. Raise :class:`PatternError` where the buffers do not fit each
    other; bytes match elements of any type."""
    if sender.nbytes != receiver.nbytes:
        raise PatternError(
            f"rank {source} sends {sender.nbytes} bytes with tag {sender.tag}, "
            f"rank {dest} receives {receiver.nbytes}"
        )
    kinds = sender.kind, receiver.kind
    if kinds[0] != kinds[1] and not any(np.dtype(kind).char in "bBVS?" for kind in kinds):
        raise PatternError(
            f"rank {source} sends {np.dtype(kinds[0])} with tag {sender.tag}, "
            f"rank {dest} receives {np.dtype(kinds[1])}"
        )


#: Receives from one peer that a rank has at a time. Their numbers go round, so that a message which
#: a program that is in error leaves behind is not soon taken for one of another request.
SLOTS = 4096


@functools.cache
def highest_tag() -> int:
    """Local. The highest tag of this MPI, under which the sides find each other."""
    bound = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
    return bound if isinstance(bound, int) else 32767


def message_tag(slot: int, group: int = 0) -> int:
    """Local, the same on both sides. That of a group which goes to a receive; all of them are in
    the upper half."""
    return highest_tag() // 2 + slot + group * SLOTS


def most_groups() -> int:
    """Local. The groups for which there are tags."""
    return (highest_tag() - highest_tag() // 2) // SLOTS


#: Peer, side of the peer, and tag of the caller: what is matched in order.
Queue = tuple[int, int, int]

#: A queue, and the place in it.
Position = tuple[Queue, int]


class Matching:
    """The parameters that have come, and the slots in use, of one communicator on this rank."""

    def __init__(self, comm: MPI.Intracomm, attachment: Attachment) -> None:
        self.comm, self._attachment = comm, attachment
        self._tag = highest_tag()
        self._slots: defaultdict[int, set[int]] = defaultdict(set)  # in use, by peer
        self._next = 0
        self.guard = Guard()
        self._asked: defaultdict[Queue, int] = defaultdict(int)
        self._came: defaultdict[Queue, int] = defaultdict(int)
        self._waiting: dict[Position, tuple[Parameters, bool]] = {}
        self._mine_private: set[Position] = set()
        self._left: dict[Position, int] = {}  # and the slot
        self._posted: list[MPI.Request] = []
        self._status = MPI.Status()
        self._letter: list[Any] = []  # one that has come, until it has been read
        #: Of receives: the communicator, the peer, the slot, and the parameters of the sender.
        self._given_up: list[tuple[MPI.Intracomm, int, int, Parameters]] = []
        #: Why peers have failed, by position.
        self.failures: dict[Position, OnesidedError] = {}

    @classmethod
    def of(cls, comm: MPI.Comm) -> Matching:
        """Local. That of a communicator; :class:`OnesidedError` for what is none."""
        attachment = Attachment.of(comm)
        found: Matching | None = attachment.mailbox
        if found is None:  # of several threads the first one has made it for all
            made = cls(comm, attachment)  # type: ignore[arg-type]
            found = vars(attachment).setdefault("mailbox", made)
        return found

    def _private(self) -> MPI.Intracomm | None:
        """Local. The package's own duplicate, where there is one already."""
        context = self._attachment.context
        return None if context is None else context.comm

    @guarded
    def post(self, parameters: Parameters, peer: int) -> Position:
        """Local. Tell the peer; returns the position at which its answer arrives."""
        other = RECEIVER if parameters.side == SENDER else SENDER
        queue = (peer, other, parameters.tag)
        position = (queue, self._asked[queue])
        self._asked[queue] += 1
        private = self._private()
        if private is not None:
            self._mine_private.add(position)
        self._send((position[1], parameters, private is not None), peer, private)
        return position

    def tell_failure(self, position: Position, error: Exception, waits: bool) -> bool:
        """Local. This side of a matched pair has failed, and the peer cannot see it. False where
        nothing was sent: unless it ``waits``, another thread may be in the way."""
        (peer, side, tag), number = position
        mine = RECEIVER if side == SENDER else SENDER
        words = (mine, tag, number, *portable(error))
        act = self.guard.run if waits else self.guard.attempt
        return bool(act(self._send, words, peer, self._private()))

    def _send(self, what: object, peer: int, private: MPI.Intracomm | None) -> bool:
        self._posted = [request for request in self._posted if not request.Test()]
        comm = self.comm if private is None else private
        self._posted.append(comm.isend(what, peer, self._tag))
        return True

    def take(self, position: Position) -> tuple[Parameters, MPI.Intracomm] | None:
        """Local, under the guard. The peer's parameters and the communicator of the pair, where
        they have come."""
        self._receive()
        found = self._waiting.pop(position, None)
        return None if found is None else (found[0], self._comm_of(position, found[1]))

    def _comm_of(self, position: Position, theirs: bool) -> MPI.Intracomm:
        """Local. That of a pair: the private one where both sides had it."""
        private = self._private() if theirs and position in self._mine_private else None
        self._mine_private.discard(position)
        return self.comm if private is None else private

    def probe(self, source: int = MPI.ANY_SOURCE, tag: int = 0) -> None:
        """Local. Drive MPI on this communicator, and take what has come."""
        self.guard.attempt(self._receive)

    def _receive(self) -> None:
        private = self._private()
        if private is not None:
            self._receive_from(private)
        self._receive_from(self.comm)

    def _receive_from(self, comm: MPI.Comm) -> None:
        while self._letter or self._has_letter(comm):
            self._read(self._status.source, self._letter[0])
            self._letter.clear()

    def _has_letter(self, comm: MPI.Comm) -> bool:
        """Receive a letter, if there is one, in one call of C: an interrupt comes before or after,
        and loses none."""
        messages = map(comm.improbe, (MPI.ANY_SOURCE,), (self._tag,), (self._status,))
        self._letter.extend(map(MPI.Message.recv, filter(None, messages)))
        return bool(self._letter)

    def _read(self, peer: int, words: Any) -> None:
        if len(words) > 3:
            side, tag, number, kind, text = words
            self.failures[(peer, side, tag), number] = kind(f"rank {peer}: {text}")
            return
        number, parameters, private = words
        position = (queue := (peer, parameters.side, parameters.tag), number)
        self._came[queue] += 1
        if position in self._left:
            self._give_up(position, self._left.pop(position), parameters, private)
        else:
            self._waiting[position] = parameters, private

    @guarded
    def leave(self, position: Position, slot: int) -> None:
        """Local. Nobody will take the parameters at this position."""
        found = self._waiting.pop(position, None)
        if found is None:
            self._left[position] = slot
        else:
            self._give_up(position, slot, *found)

    def _give_up(self, position: Position, slot: int, theirs: Parameters, private: bool) -> None:
        self.give_up(self._comm_of(position, private), position[0][0], slot, theirs)

    def give_up(self, comm: MPI.Intracomm, peer: int, slot: int, theirs: Parameters) -> None:
        """Local. Messages of this sender may still come, and nobody will receive them."""
        if theirs.side == SENDER:
            self._given_up.append((comm, peer, slot, theirs))

    def _receive_left_over(
        self, comm: MPI.Intracomm, peer: int, slot: int, theirs: Parameters
    ) -> None:
        for group in range(min(theirs.grouping.groups, most_groups())):
            tag = message_tag(slot, group)
            while (message := comm.Improbe(peer, tag, self._status)) is not None:
                message.Recv([bytearray(self._status.Get_count(MPI.BYTE)), MPI.BYTE])

    @guarded
    def close(self, comm: MPI.Comm) -> None:
        """Local, while every rank frees the communicator. Take the answers that are still to come,
        for requests that were freed before they met: the next communicator with the number of this
        one would take them for its own; and what has come for receives that were given up. Waits
        for a second where a peer never answers.
        """
        given_up = time.monotonic() + 1
        while True:
            for each in (self._private(), comm):
                if each is not None:
                    self._receive_from(each)
            unanswered = any(self._came[queue] < n for queue, n in self._asked.items())
            if not unanswered or time.monotonic() > given_up:
                break
        for given in self._given_up:
            if given[0] != MPI.COMM_NULL:
                self._receive_left_over(*given)

    @guarded
    def take_slot(self, peer: int) -> int:
        """Local. A number that no other receive from this peer has."""
        used = self._slots[peer]
        for number in range(self._next, self._next + SLOTS):
            slot = number % SLOTS
            if slot not in used:
                used.add(slot)
                self._next = slot + 1
                return slot
        raise ResourceError(f"a rank has at most {SLOTS} receives from another at a time")

    def give_slot(self, peer: int, slot: int) -> None:
        """Local. All that was sent to this receive has come."""
        self._slots[peer].discard(slot)


@dataclass(frozen=True)
class Arguments:
    """What one side was given: the buffer as the caller gave it and as bytes, and the peer;
    ``parameters`` are what it tells the peer. ``give_back`` is called at the end, with whether the
    peer may still write."""

    matching: Matching
    given: Any
    memory: NDArray[np.uint8]
    peer: int
    hints: Hints
    parameters: Parameters
    give_back: Callable[[bool], object]


def read_arguments(
    comm: MPI.Intracomm, buf: Any, partitions: int, peer: int, tag: int, aggregate: int, side: int,
    method: str, info: Info,
) -> Arguments:  # fmt: skip
    """Local. The arguments, or an error."""
    matching, hints = Matching.of(comm), Hints.of(info)
    partitions = _integer("partitions", partitions, 1, 1 << 31)
    tag = _integer("tag", tag, 0, highest_tag())
    aggregate = _integer("aggregate, in bytes,", aggregate, 0, 1 << 62)
    if not isinstance(peer, int | np.integer) or not (
        0 <= peer < comm.size or peer == MPI.PROC_NULL
    ):
        raise PatternError(f"no rank {peer!r} in a communicator of {comm.size}")
    given, array = _elements(buf, partitions, "send" if side == SENDER else "recv")
    if array.size % partitions:
        raise PatternError(
            f"{partitions} partitions do not divide a buffer of {array.size} elements"
        )
    memory, kind = np.frombuffer(as_bytes(array), np.uint8), array.dtype.str
    slot, reach = 0, Reach()
    give_back: Callable[[bool], object] = bool
    if side == RECEIVER and peer != MPI.PROC_NULL:
        slot = matching.take_slot(int(peer))
        reach, give_back = _reach_of(comm, memory, int(peer))
    parameters = Parameters(
        side, tag, memory.size, kind, partitions, aggregate, method, slot, reach)
    return Arguments(matching, given, memory, int(peer), hints, parameters, give_back)


def _integer(name: str, value: Any, lowest: int, highest: int) -> int:
    if not isinstance(value, int | np.integer) or not lowest <= value <= highest:
        raise PatternError(f"{name} must be an integer from {lowest} to {highest}, not {value!r}")
    return int(value)


def _elements(buf: Any, partitions: int, role: str) -> tuple[Any, NDArray[Any]]:
    """What the caller passed as data, and the elements that travel, without a copy."""
    spec = buf
    if isinstance(buf, list | tuple) and len(buf) > 1:
        pair = isinstance(buf[1], list | tuple) and len(buf[1]) == 2
        count, *displ = buf[1] if pair else buf[1:2]
        if isinstance(count, int | np.integer):
            count = partitions * _integer("the count of a partition", count, 0, 1 << 62)
            spec = [buf[0], (count, *displ) if pair else count, *buf[2:]]
    read = simple(spec, 1, role)
    return read.given, read.elements()


# -- the receive buffer as the sender sees it -----------------------------------------------------

#: Tells the channels of this rank from each other: boards are used again.
_generations = itertools.count(1)


def _reach_of(
    comm: MPI.Intracomm, memory: NDArray[np.uint8], peer: int
) -> tuple[Reach, Callable[[bool], object]]:
    """Local. Where ``peer`` finds this memory and a board, and what gives them back.

    Nowhere where the memory is not from ``empty``, where the peer has no part in it, and where all
    links of the array are in use.
    """
    region = find_region(memory)
    if region is None or not memory.size or not _takes_part(comm, peer, region.node.comm):
        return Reach(), bool
    try:  # no lock, which what interrupts this thread could want
        place = region.boards.pop()
    except IndexError:
        return Reach(), bool
    rank, offset = region.node.comm.rank, memory.ctypes.data - region.address
    region.part(rank)[place : place + BOARD] = 0
    fence()
    generation = next(_generations) & 0x7FFFFFFF
    give_back = region.borrow()

    def give_all(written: bool) -> None:
        give_back()
        if not written:
            region.boards.append(place)

    return Reach(region.key, rank, offset, place, generation), give_all


def _takes_part(comm: MPI.Intracomm, peer: int, members: MPI.Intracomm) -> bool:
    ours, theirs = comm.Get_group(), members.Get_group()
    (seen,) = MPI.Group.Translate_ranks(ours, [peer], theirs)
    for group in (ours, theirs):
        group.Free()
    return bool(seen != MPI.UNDEFINED)
