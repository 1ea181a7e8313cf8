"""A discrete-event simulation of one round on some hundreds of ranks, to check the formulas.

The formulas count messages and bytes of the busiest rank. Here every message of every rank travels
on its own: a processor spends the overhead on it, it leaves the rank a gap and its bytes after the
one before, it passes the link of its node, and that of the target's node, one after the other with
what other ranks send, and arrives a latency later. The parameters are the same, but the software
of the methods is left out.

A rank's program is a generator that yields what it does next: a number of seconds of work, or an
:class:`Arrivals` to wait for. The programs of the methods are written from the transports, not
from the formulas, because the two are compared; receive memory is in two slots.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from onesided.collectives.errors import MethodError, PatternError
from onesided.collectives.modelling.loggp import LogGP
from onesided.collectives.modelling.parameters import Level, Parameters

#: Ranks beyond which a simulation takes minutes.
MOST_RANKS = 1024


@dataclass(frozen=True)
class Arrivals:
    """So many arrivals of a kind, which are taken away when they are there."""

    kind: object
    count: int = 1


Step = float | Arrivals
Program = Callable[["Actor"], Iterator[Step]]


class Simulation:
    """A machine with a clock; ``sent[i, j]`` bytes go from rank i to j on node ``nodes[j]``."""

    def __init__(self, parameters: Parameters, sent: Any, nodes: Sequence[int]) -> None:
        self.parameters = parameters
        matrix = np.asarray(sent, float)
        if matrix.shape != (len(nodes), len(nodes)) or not 0 < len(nodes) <= MOST_RANKS:
            raise PatternError(
                f"a simulation of {len(nodes)} ranks with a matrix of shape {matrix.shape}; "
                f"at most {MOST_RANKS} ranks are possible"
            )
        self.now = 0.0
        self.nodes = list(nodes)
        self.leaving = dict.fromkeys(nodes, 0.0)  # until when the links are busy, by node
        self.entering = dict.fromkeys(nodes, 0.0)
        self._events: list[tuple[float, int, Actor, object]] = []
        self._count = 0
        self.actors = [Actor(self, rank, matrix) for rank in range(len(nodes))]

    def run(self, program: Program) -> float:
        """Local. Seconds until the last rank has come to the end of its program."""
        for actor in self.actors:
            actor.program = program(actor)
            self.at(0.0, actor, None)
        while self._events:
            self.now, _, actor, kind = heapq.heappop(self._events)
            actor.wake(kind)
        stuck = [actor.rank for actor in self.actors if not actor.ended]
        if stuck:
            raise PatternError(f"ranks {stuck} wait for what never arrives")
        return self.now

    def at(self, when: float, actor: Actor, kind: object) -> None:
        """Local. Something arrives at a rank; None: the rank goes on with its program."""
        self._count += 1
        heapq.heappush(self._events, (when, self._count, actor, kind))


class Actor:
    """A rank: its processor, its way out, and what has arrived."""

    def __init__(self, machine: Simulation, rank: int, matrix: Any) -> None:
        self.machine, self.rank = machine, rank
        self.node = machine.nodes[rank]
        size = len(machine.nodes)
        order = [(rank + step) % size for step in range(1, size)]  # the next rank first
        self.to = [(peer, float(matrix[rank, peer])) for peer in order if matrix[rank, peer]]
        self.sources = [peer for peer in order if matrix[peer, rank]]
        self.program: Iterator[Step] = iter(())
        self.ended = False
        self.flushed = 0.0
        self._free = 0.0
        self._seen: Counter[object] = Counter()
        self._waiting: Arrivals | None = None

    # -- what a program asks ---------------------------------------------------------------------

    def near(self, peer: int) -> bool:
        """Whether a peer is on this node."""
        return self.machine.nodes[peer] == self.node

    def level(self, peer: int) -> Level:
        """The level between this rank and a peer."""
        return self.machine.parameters.level("node" if self.near(peer) else "network")

    # -- what it does: seconds of its processor ----------------------------------------------------

    def send(self, peer: int, nbytes: float, kind: object = "data") -> float:
        """A two-sided message, which arrives as ``kind``."""
        level = self.level(peer)
        network = level.messages.at(nbytes)
        arrival = self._travel(peer, nbytes, network, level)
        self.machine.at(arrival, self.machine.actors[peer], kind)
        return network.overhead

    def receive(self, peer: int, nbytes: float) -> float:
        """What a message costs its receiver."""
        return self.level(peer).messages.at(nbytes).overhead

    def put(self, peer: int, nbytes: float) -> float:
        """A Put; ``flushed`` is when all are known to be complete."""
        level = self.level(peer)
        network = level.puts.at(nbytes)
        self.flushed = max(self.flushed, self._travel(peer, nbytes, network, level))
        return network.overhead

    def flush(self) -> float:
        """The wait until all Puts are complete."""
        return max(0.0, self.flushed - self.machine.now)

    def signal(self, peer: int, kind: object, latency: float) -> float:
        """An empty message, which arrives after ``latency``."""
        self.machine.at(self.machine.now + latency, self.machine.actors[peer], kind)
        return self.level(peer).messages.short.overhead

    def notify(self, peer: int, kind: object) -> float:
        """A counter accumulated, which arrives as ``kind``; the next one leaves a gap later."""
        level = self.level(peer)
        self.machine.at(self.machine.now + level.notice, self.machine.actors[peer], kind)
        return max(level.puts.short.gap, level.puts.short.overhead)

    def stores(self) -> float:
        """All blocks for ranks of the node."""
        sizes = [nbytes for peer, nbytes in self.to if self.near(peer)]
        if not sizes:
            return 0.0
        network = self.machine.parameters.stores.at(sum(sizes))
        gap = self.machine.parameters.stores.busy(len(sizes))
        return network.latency + network.overhead + sum(sizes) * network.byte_gap + float(gap)

    def _travel(self, peer: int, nbytes: float, network: LogGP, level: Level) -> float:
        """When the last byte has arrived."""
        machine = self.machine
        departs = max(machine.now + network.overhead, self._free)
        self._free = departs + network.gap + nbytes * network.byte_gap
        done = departs + nbytes * network.byte_gap
        if not self.near(peer):
            busy = nbytes * level.link_byte_gap + level.link_gap
            target = machine.nodes[peer]
            out = max(departs, machine.leaving[self.node])
            machine.leaving[self.node] = out + busy
            into = max(out, machine.entering[target])
            machine.entering[target] = into + busy
            done = max(done, into + busy)
        return done + network.latency

    # -- the clock ---------------------------------------------------------------------------------

    def wake(self, kind: object) -> None:
        """Local. Something has arrived, or the work is done; go on where that is possible."""
        if kind is not None:
            self._seen[kind] += 1
            if self._waiting is None or not self._take(self._waiting):
                return
            self._waiting = None
        for step in self.program:
            if isinstance(step, Arrivals):
                if not self._take(step):
                    self._waiting = step
                    return
            elif step > 0:
                self.machine.at(self.machine.now + step, self, None)
                return
        self.ended = True

    def _take(self, wanted: Arrivals) -> bool:
        if self._seen[wanted.kind] < wanted.count:
            return False
        self._seen[wanted.kind] -= wanted.count
        return True


# -- the programs of the methods ------------------------------------------------------------------


def program(method: str) -> Program:
    """Local. The program of a method; :class:`MethodError` where there is none."""
    if method not in _PROGRAMS:
        raise MethodError(f"no program of {method!r}; there are {', '.join(_PROGRAMS)}")
    return _PROGRAMS[method]


def _messages(rank: Actor) -> Iterator[Step]:
    for peer, nbytes in rank.to:
        yield rank.send(peer, nbytes)
    for peer in rank.sources:  # in the order in which they come
        yield Arrivals("data")
        yield rank.receive(peer, 0.0)


def _puts(rank: Actor, *, near: bool) -> Iterator[Step]:
    for peer, nbytes in rank.to:
        if near or not rank.near(peer):
            yield rank.put(peer, nbytes)


def _barrier(rank: Actor, name: str, first: str = "") -> Iterator[Step]:
    """Dissemination among the ranks of the node, then among those with the same place on theirs.

    The first step at the widest level takes as long as the operation ``first`` of two ranks does,
    or nothing where that is part of another barrier.
    """
    wide = "network" if len(set(rank.machine.nodes)) > 1 else "node"
    nodes = rank.machine.nodes
    mates = [peer for peer, node in enumerate(nodes) if node == rank.node]
    place = mates.index(rank.rank)
    by_node: dict[int, list[int]] = {}
    for peer, node in enumerate(nodes):
        by_node.setdefault(node, []).append(peer)
    lane = [members[min(place, len(members) - 1)] for members in by_node.values()]
    for which, group in (("node", mates), ("network", lane)):
        mine, step = group.index(rank.rank), 1
        while step < len(group):
            level = rank.machine.parameters.level(which)
            seconds = level.barrier
            if which == wide and step == 1:
                seconds = getattr(level, first) if first else 0.0
            to = group[(mine + step) % len(group)]
            there = rank.machine.actors[to]
            rank.machine.at(rank.machine.now + seconds, there, (name, which, step))
            yield Arrivals((name, which, step))
            step *= 2


def _fence(rank: Actor, *, puts_first: bool = False) -> Iterator[Step]:
    if puts_first:
        yield from _puts(rank, near=False)
        yield rank.stores()
    else:
        yield rank.stores()
        yield from _puts(rank, near=False)
    yield rank.flush()
    far = any(not rank.near(peer) for peer, _ in rank.to)
    yield from _barrier(rank, "closing", "fence" if far else "empty_fence")


def _printed_fence(rank: Actor) -> Iterator[Step]:
    yield from _barrier(rank, "opening", "opening")
    yield from _puts(rank, near=True)
    yield rank.flush()
    yield from _barrier(rank, "closing", "fence")


def _lock(rank: Actor, *, puts_first: bool = False) -> Iterator[Step]:
    if puts_first:
        yield from _puts(rank, near=False)
        yield rank.stores()
    else:
        yield rank.stores()
        yield from _puts(rank, near=False)
    yield rank.flush()
    for peer, _ in rank.to:
        yield rank.signal(peer, "done", rank.level(peer).done)
    for peer in rank.sources:
        yield Arrivals("done")
        yield rank.receive(peer, 0.0)


def _printed_lock(rank: Actor) -> Iterator[Step]:
    yield from _puts(rank, near=True)
    yield rank.flush()
    yield from _barrier(rank, "first", "relock")
    yield from _barrier(rank, "second")


def _stored(rank: Actor) -> Iterator[Step]:
    yield rank.stores()
    for peer, _ in rank.to:
        if rank.near(peer):
            there = rank.machine.actors[peer]
            when = rank.machine.now + rank.level(peer).notice
            rank.machine.at(when, there, ("counter", rank.rank))


def _notify(rank: Actor) -> Iterator[Step]:
    yield from _stored(rank)
    yield from _puts(rank, near=False)
    yield rank.flush()
    for peer, _ in rank.to:
        if not rank.near(peer):
            yield rank.notify(peer, ("counter", rank.rank))
    for peer in rank.sources:
        yield Arrivals(("counter", peer))


def _store_and_send(rank: Actor) -> Iterator[Step]:
    yield from _stored(rank)
    for peer, nbytes in rank.to:
        if not rank.near(peer):
            yield rank.send(peer, nbytes)
    for peer in rank.sources:
        yield Arrivals(("counter", peer) if rank.near(peer) else "data")
        if not rank.near(peer):
            yield rank.receive(peer, 0.0)


def _pscw(rank: Actor) -> Iterator[Step]:
    for peer in rank.sources:
        yield rank.signal(peer, "ready", rank.level(peer).signal)
    for peer, _ in rank.to:
        yield Arrivals("ready")
        yield rank.receive(peer, 0.0)
    yield rank.stores()
    yield from _puts(rank, near=False)
    yield rank.flush()
    for peer, _ in rank.to:
        there = rank.machine.actors[peer]
        rank.machine.at(rank.machine.now + rank.level(peer).epoch, there, "complete")
        yield rank.receive(peer, 0.0)
    for peer in rank.sources:
        yield Arrivals("complete")
        yield rank.receive(peer, 0.0)


_PROGRAMS: dict[str, Program] = {
    "mpi": _messages,
    "mpi-persistent": _messages,
    "p2p": _messages,
    "rma-fence": _fence,
    "rma-lock": _lock,
    "rma-notify": _notify,
    "rma-p2p": _store_and_send,
    "rma-pscw": _pscw,
    "rma-fence-hier": partial(_fence, puts_first=True),
    "rma-lock-hier": partial(_lock, puts_first=True),
    "rma-fence-paper": _printed_fence,
    "rma-lock-paper": _printed_lock,
}
