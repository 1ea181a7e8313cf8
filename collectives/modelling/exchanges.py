"""What a round of an exchange costs with every method: formulas, and predictions by them; no MPI.

A round is made of the parts that :class:`Costs` has: stores into memory that a node shares, Puts,
messages, signals, barriers. A method's formula adds up its parts, or takes the longer one of two
that go on at the same time; a method's software, and its own block, come on top. The formulas are
listed by method at one place, :data:`_FORMULAS`: a new one is a class and a line there.

The same numbers come out on every rank that is given the same ones, so nobody has to agree on
which method is the fastest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onesided.collectives.errors import MethodError
from onesided.collectives.modelling.loggp import Numbers, PiecewiseLogGP
from onesided.collectives.modelling.parameters import Level, Parameters
from onesided.collectives.modelling.traffic import Traffic


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
        transfer = self.parameters.stores
        copied = transfer.time(count > 0, self.traffic.near_bytes, size=self.traffic.copied_bytes)
        return copied + transfer.busy(count)

    def messages(self, *, collective: bool = False, near: bool = True) -> Numbers:
        """Local. Two-sided messages on the node and off it, by the same processor.

        ``collective``: as MPI's own collective sends them, and on the node to the rank itself.
        Without ``near`` only those off it.
        """
        traffic = self.traffic
        cost: Numbers = 0.0
        if near and np.any(traffic.near_messages):
            transfer = _two_sided(self.parameters.level("node"), collective)
            cost = self._near_and_own(transfer) if collective else self._near(transfer)
        elif collective:
            own = np.asarray(traffic.own_bytes, float)
            cost = self.parameters.stores.time(own > 0, own)
        if np.any(traffic.far_messages):
            level = self.parameters.level("network")
            transfer = _two_sided(level, collective)
            cost = cost + self._far(level, transfer.time, level.congestion)
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

    def _near(self, transfer: PiecewiseLogGP) -> Numbers:
        """Blocks for ranks of the node, which are copied: slower where that leaves the cache."""
        traffic = self.traffic
        return transfer.time(traffic.near_messages, traffic.near_bytes, size=traffic.copied_bytes)

    def _near_and_own(self, transfer: PiecewiseLogGP) -> Numbers:
        """The same with a message to the rank itself, where other ranks of the node get some.

        The parameters were found with two messages, so half of all bytes tells what is cached.
        """
        traffic = self.traffic
        near, own = np.asarray(traffic.near_messages), np.asarray(traffic.own_bytes, float)
        nbytes = np.asarray(traffic.copied_bytes, float)
        count = np.where(near > 0, near + (own > 0), 0)
        copied = self.parameters.stores.time(own > 0, own)
        return np.where(near > 0, transfer.time(count, nbytes, size=nbytes / 2), copied)

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


def _two_sided(level: Level, collective: bool) -> PiecewiseLogGP:
    return level.collective if collective and level.collective is not None else level.messages


class Formula(ABC):
    """The cost of a method's round beyond what a rank does alone: software, and its own block.

    ``copies_own`` is false where the own block is in this cost; ``meets_everyone`` is true where a
    round ends when all ranks are in it, not only those that a rank hears from.
    """

    copies_own: ClassVar[bool] = True
    meets_everyone: ClassVar[bool] = False

    @abstractmethod
    def seconds(self, costs: Costs) -> Numbers:
        """Local. Numbers or arrays, as the traffic has them."""


class Collective(Formula):
    """``MPI_Alltoallv`` and its persistent form: ``T = messages(node) + messages(network)``.

    All blocks leave at once and are awaited together (what MPICH and Open MPI do with long
    messages, and with short ones in groups): LogGP's k messages one after the other, in both
    directions at once. The collectives of an MPI may send them by other protocols than messages of
    the user's, so these have parameters of their own. MPICH sends a rank's own block as a message,
    too.
    """

    copies_own = False

    def seconds(self, costs: Costs) -> Numbers:
        return costs.messages(collective=True)


class PointToPoint(Formula):
    """Blocks by the user's messages, one per peer: ``T = messages(node) + messages(network)``."""

    def seconds(self, costs: Costs) -> Numbers:
        return costs.messages()


class FenceRound(Formula):
    """Fences on memory that MPI allocated: every round ends with a barrier of all ranks.

    ``T = stores + puts + fence(P)``, where Puts include the flush that the fence performs, and a
    fence of P ranks takes longer than one of two by the steps of the barrier that it is. With one
    receive slot an empty fence opens the round. A node stores while nothing travels yet where its
    ranks are served first, so the parts add up. Source: Algorithm 1 of paper 000.
    """

    meets_everyone = True

    def seconds(self, costs: Costs) -> Numbers:
        return self.data(costs) + self.closing(costs) + self.opening(costs)

    def data(self, costs: Costs) -> Numbers:
        """Local. Until the blocks are where they belong."""
        return costs.stores() + costs.puts()

    def closing(self, costs: Costs) -> Numbers:
        """Local. The fence at the end: with Puts to complete, or without."""
        put = np.asarray(costs.traffic.far_messages) > 0
        return np.where(put, costs.of_all("fence"), costs.of_all("empty_fence"))

    def opening(self, costs: Costs) -> Numbers:
        """Local. The fence before, which two slots do not need."""
        if costs.traffic.slots > 1:
            return 0.0
        return costs.of_all("empty_fence")


class FenceHierarchyRound(FenceRound):
    """Algorithm 2: the Puts first, which travel meanwhile, so the longer part counts."""

    def data(self, costs: Costs) -> Numbers:
        return np.maximum(costs.stores(), costs.puts())


class PrintedFenceRound(FenceRound):
    """Algorithm 1 as printed: every block Put, and two fences."""

    def data(self, costs: Costs) -> Numbers:
        return costs.puts(near=True)

    def closing(self, costs: Costs) -> Numbers:
        return costs.of_all("fence")

    def opening(self, costs: Costs) -> Numbers:
        return costs.of_all("opening")


class LockRound(Formula):
    """A passive epoch held from initialization: *ready* and *done* are empty messages.

    ``T = stores + puts + done``, the Puts flushed target by target, all of them issued before.
    With one receive slot a rank waits for *ready* first: ``T = signals + stores + puts + done``.
    """

    def seconds(self, costs: Costs) -> Numbers:
        ready = costs.signals() if costs.traffic.slots == 1 else 0.0
        return ready + self.data(costs.stores(), costs.puts()) + costs.signals("done")

    def data(self, stores: Numbers, puts: Numbers) -> Numbers:
        """Local. Until the blocks are where they belong."""
        return stores + puts


class LockHierarchyRound(LockRound):
    """The Puts first, which travel while the node is served."""

    def data(self, stores: Numbers, puts: Numbers) -> Numbers:
        return np.maximum(stores, puts)


class PrintedLockRound(Formula):
    """Algorithm 3 as printed, made right: ``T = puts + relock(P)``.

    It releases its own lock, locks all, Puts, unlocks all, and takes its own again between two
    barriers.
    """

    meets_everyone = True

    def seconds(self, costs: Costs) -> Numbers:
        return costs.puts(near=True, locked=True) + costs.of_all("relock", barriers=2)


class NotifyRound(Formula):
    """Data, then a counter at the target; nobody waits for everybody.

    On the node the counters are stored, and seen a moment later. Off the node all k targets are
    flushed, get their counters by Accumulate, and are flushed again:
    ``T = stores + notice(node) + puts + notice(network) + (k - 1) e o``. With one receive slot a
    *credit* comes first.

    Where Accumulate itself waits for its target, as Open MPI's does over TCP, there are k notices,
    not one: the formula is too small by the others on more than two nodes.
    """

    def seconds(self, costs: Costs) -> Numbers:
        far = np.asarray(costs.traffic.far_messages, float)
        notices = costs.once("node", "notice", np.asarray(costs.traffic.near_messages) > 0)
        if np.any(far):
            others = costs.parameters.level("network").puts.busy(far)
            notices = notices + costs.once("network", "notice", far > 0) + others
        credit = costs.signals(near=False) if costs.traffic.slots == 1 else 0.0
        return credit + costs.stores() + costs.puts() + notices


class StoreAndSendRound(Formula):
    """Stores and counters on the node, the user's messages off it.

    ``T = stores + notice(node) + messages(network)``; a message needs no credit, it is received
    where it belongs.
    """

    def seconds(self, costs: Costs) -> Numbers:
        notice = costs.once("node", "notice", np.asarray(costs.traffic.near_messages) > 0)
        return costs.stores() + notice + costs.messages(near=False)


class PscwRound(Formula):
    """General active target synchronization, among the ranks that exchange data.

    *Ready* messages, then one access epoch, all of whose targets have posted:
    ``T = signals + stores + puts + epoch + the messages of the other targets``.
    """

    def seconds(self, costs: Costs) -> Numbers:
        traffic = costs.traffic
        rest: Numbers = 0.0
        if np.any(traffic.near_messages):
            rest = costs.parameters.level("node").messages.busy(traffic.near_messages)
        if np.any(traffic.far_messages):
            rest = rest + costs.parameters.level("network").messages.busy(traffic.far_messages)
        data = costs.stores() + costs.puts()
        return costs.signals() + data + costs.at_farthest("epoch") + rest


#: In the order of the methods' own registry.
_FORMULAS: dict[str, Formula] = {
    "mpi": Collective(),
    "mpi-persistent": Collective(),
    "p2p": PointToPoint(),
    "rma-fence": FenceRound(),
    "rma-lock": LockRound(),
    "rma-notify": NotifyRound(),
    "rma-p2p": StoreAndSendRound(),
    "rma-pscw": PscwRound(),
    "rma-fence-hier": FenceHierarchyRound(),
    "rma-lock-hier": LockHierarchyRound(),
    "rma-fence-paper": PrintedFenceRound(),
    "rma-lock-paper": PrintedLockRound(),
}


def formulas() -> dict[str, Formula]:
    """Local. The formulas by method, in the order of the methods' own registry."""
    return dict(_FORMULAS)


def predict(
    traffic: Traffic, parameters: Parameters, methods: Iterable[str] | None = None
) -> dict[str, float]:
    """Local. Seconds of a round by method, in the order of ``methods`` (None: all that have one).

    ``traffic`` holds numbers. Raises :class:`MethodError` for a method without a formula, and
    :class:`~onesided.collectives.errors.PatternError` where the parameters lack a level of the
    machine that the traffic uses.
    """
    swept = predict_all(traffic, parameters, methods)
    return {method: float(seconds) for method, seconds in swept.items()}


def predict_all(
    traffic: Traffic, parameters: Parameters, methods: Iterable[str] | None = None
) -> Mapping[str, Numbers]:
    """Local. The same for traffic that holds arrays: an array of seconds by method."""
    known = formulas()
    names = list(known) if methods is None else list(methods)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise MethodError(f"no model of {', '.join(unknown)}; there are {', '.join(known)}")
    costs = Costs(traffic, parameters)

    def seconds(name: str) -> Numbers:
        own = np.asarray(traffic.own_bytes, float) * known[name].copies_own
        alone = parameters.alone(name, own, traffic.copied_bytes)
        return np.asarray(known[name].seconds(costs) + alone)

    return {name: seconds(name) for name in names}


def fastest(times: Mapping[str, float]) -> str:
    """Local. The method of the least time, the first one of equals."""
    return min(times, key=times.__getitem__)


def contenders(times: Mapping[str, float], error: float) -> list[str]:
    """Local. Which methods may be the fastest, the one of the least time first.

    ``error`` is the relative error of a prediction: what is slower than the least time by less
    than that, the model cannot tell from it. Several names mean that it is undecided.
    """
    least = min(times.values())
    near = [method for method, seconds in times.items() if seconds <= (1.0 + error) * least]
    return sorted(near, key=times.__getitem__)
