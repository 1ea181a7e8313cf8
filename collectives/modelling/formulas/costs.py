"""What the formulas of all methods are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onesided.collectives.modelling.parameters import Level, Parameters
from onesided.collectives.modelling.traffic import Traffic
from onesided.collectives.modelling.way import Numbers, Way


@dataclass(frozen=True)
class Costs:
    """The parts of a round of this traffic on this machine, in seconds; numbers or arrays."""

    traffic: Traffic
    parameters: Parameters

    @property
    def spread(self) -> Any:
        """Whether there is more than one node."""
        return np.asarray(self.traffic.nodes) > 1

    @property
    def shared(self) -> Any:
        """Whether there is a node with more than one rank."""
        return self.traffic.ranks_per_node > 1

    def stores(self) -> Numbers:
        """Local. Blocks for ranks of the node, stored one after the other.

        A copy is slower where all that is copied has left the cache, not a block of it.
        """
        count = np.asarray(self.traffic.near_messages, float)
        way = self.parameters.stores
        copied = way.time(count > 0, self.traffic.near_bytes, size=self.traffic.copied_bytes)
        return copied + way.busy(count)

    def messages(self, *, collective: bool = False) -> Numbers:
        """Local. Two-sided messages on the node and off it, by the same processor.

        ``collective``: as MPI's own collective sends them, and on the node to the rank itself.
        """
        traffic = self.traffic
        cost: Numbers = 0.0
        if np.any(traffic.near_messages):
            way = _two_sided(self.parameters.level("node"), collective)
            cost = self._near_and_own(way) if collective else self._near(way)
        elif collective:
            own = np.asarray(traffic.own_bytes, float)
            cost = self.parameters.stores.time(own > 0, own)
        if np.any(traffic.far_messages):
            level = self.parameters.level("network")
            way = _two_sided(level, collective)
            cost = cost + self._far(level, way.time, level.congestion)
        return cost

    def puts(self, *, near: bool = False, locked: bool = False) -> Numbers:
        """Local. Off-node blocks Put and flushed.

        ``near``: those of the node as well; ``locked``: under the locks of the printed algorithm.
        """
        traffic = self.traffic
        cost: Numbers = 0.0
        if near and np.any(traffic.near_messages):
            cost = self._near(self.parameters.level("node").puts)
        if np.any(traffic.far_messages):
            level = self.parameters.level("network")
            cost = cost + self._far(level, level.puts.time, level.contention if locked else 0.0)
        return cost

    def _near(self, way: Way) -> Numbers:
        """Blocks for ranks of the node, which are copied: slower where that leaves the cache."""
        traffic = self.traffic
        return way.time(traffic.near_messages, traffic.near_bytes, size=traffic.copied_bytes)

    def _near_and_own(self, way: Way) -> Numbers:
        """The same with a message to the rank itself, where other ranks of the node get some.

        The parameters were found with two messages, so half of all bytes tells what is cached.
        """
        traffic = self.traffic
        near, own = np.asarray(traffic.near_messages), np.asarray(traffic.own_bytes, float)
        nbytes = np.asarray(traffic.copied_bytes, float)
        count = np.where(near > 0, near + (own > 0), 0)
        copied = self.parameters.stores.time(own > 0, own)
        return np.where(near > 0, way.time(count, nbytes, size=nbytes / 2), copied)

    def _far(self, level: Level, issue: Callable[..., Numbers], share: float) -> Numbers:
        """Off-node blocks, whose bytes take longer by ``share`` for every doubling of the nodes."""
        doublings = np.log2(np.maximum(self.traffic.nodes, 2)) - 1.0
        longer = 1.0 + share * doublings
        nbytes = np.asarray(self.traffic.far_bytes, float) * longer
        return issue(self.traffic.far_messages, nbytes, self._link(level, longer))

    def _link(self, level: Level, factor: Any) -> Any:
        """Seconds that a node's link is busy with what all its ranks send, or receive."""
        traffic = self.traffic
        bytes_of = np.asarray(traffic.link_bytes, float) * level.link_byte_gap * factor
        return bytes_of + np.asarray(traffic.link_messages, float) * level.link_gap

    def barrier(self) -> Numbers:
        """Local. Dissemination on the node, then between nodes: a step for every doubling.

        Source: Hensgen, Finkel, Manber 1988; first within each node, then among ranks that have
        the same place on theirs.
        """
        steps = np.ceil(np.log2(self.traffic.ranks_per_node))
        cost: Numbers = 0.0
        if np.any(steps):
            cost = steps * self.parameters.level("node").barrier
        if np.any(self.spread):
            hops = np.ceil(np.log2(np.maximum(self.traffic.nodes, 1)))
            cost = cost + hops * self.parameters.level("network").barrier
        return cost

    def of_all(self, name: str, barriers: int = 1) -> Numbers:
        """Local. A cost of synchronizing all ranks, which holds so many steps of a barrier.

        Its own is that of two ranks: at the network where there is one, else on the node. More
        ranks add the other steps of so many barriers.
        """
        steps = barriers * (self.barrier() - self.at_widest("barrier"))
        return self.at_widest(name) + steps

    def at_widest(self, name: str) -> Numbers:
        """Local. A cost at the network where there is one, else on the node, if it is shared."""
        near = self.once("node", name, self.shared)
        far = self.once("network", name, self.spread)
        return np.where(self.spread, far, near)

    def at_farthest(self, name: str) -> Numbers:
        """Local. The same, at the farthest level that has messages."""
        near = self.once("node", name, np.asarray(self.traffic.near_messages) > 0)
        away = np.asarray(self.traffic.far_messages) > 0
        return np.where(away, self.once("network", name, away), near)

    def once(self, which: str, name: str, used: Any) -> Numbers:
        """Local. A cost of a level where it is used, else nothing."""
        if not np.any(used):
            return 0.0
        return np.where(used, getattr(self.parameters.level(which), name), 0.0)

    def signals(self, name: str = "signal", *, near: bool = True) -> Numbers:
        """Local. An empty message to and from every peer: a latency, and the time of their ends.

        Without ``near`` only from and to peers on other nodes. ``name``: whose latency it is.
        """
        traffic = self.traffic
        if near:
            cost = self.at_farthest(name)
        else:
            cost = self.once("network", name, np.asarray(traffic.far_messages) > 0)
        if near and np.any(traffic.near_messages):
            cost = cost + self.parameters.level("node").messages.busy(traffic.near_messages)
        if np.any(traffic.far_messages):
            cost = cost + self.parameters.level("network").messages.busy(traffic.far_messages)
        return cost


def _two_sided(level: Level, collective: bool) -> Way:
    return level.collective if collective and level.collective is not None else level.messages


class Formula(ABC):
    """The cost of a method's round beyond what a rank does alone: software, and its own block.

    ``copies_own`` is false where the own block is in this cost.
    """

    copies_own: ClassVar[bool] = True

    @abstractmethod
    def seconds(self, costs: Costs) -> Numbers:
        """Local. Numbers or arrays, as the traffic has them."""
