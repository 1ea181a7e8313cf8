"""A discrete-event simulation of one round on some hundreds of ranks, to check the formulas.

The formulas count messages and bytes of the busiest rank. Here every message of every rank travels
on its own: a processor spends the overhead on it, it leaves the rank a gap and its bytes after the
one before, it passes the link of its node, and that of the target's node, one after the other with
what other ranks send, and arrives a latency later. The parameters are the same, but the software
of the methods is left out.

A rank's program is a generator (:mod:`.programs`) that yields what it does next: a number of
seconds of work, or an :class:`Arrivals` to wait for.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onesided.collectives.errors import PatternError
from onesided.collectives.modelling.parameters import Level, Parameters
from onesided.collectives.modelling.way import Way
from onesided.collectives.models import Network

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
        network = _line(level.messages, nbytes)
        arrival = self._travel(peer, nbytes, network, level)
        self.machine.at(arrival, self.machine.actors[peer], kind)
        return network.overhead

    def receive(self, peer: int, nbytes: float) -> float:
        """What a message costs its receiver."""
        return _line(self.level(peer).messages, nbytes).overhead

    def put(self, peer: int, nbytes: float) -> float:
        """A Put; ``flushed`` is when all are known to be complete."""
        level = self.level(peer)
        network = _line(level.puts, nbytes)
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
        network = _line(self.machine.parameters.stores, sum(sizes))
        gap = self.machine.parameters.stores.busy(len(sizes))
        return network.latency + network.overhead + sum(sizes) * network.byte_gap + float(gap)

    def _travel(self, peer: int, nbytes: float, network: Network, level: Level) -> float:
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


def _line(way: Way, nbytes: float) -> Network:
    """The parameters for a message of this size."""
    return [line for line in way.lines if line.start <= nbytes][-1].network
