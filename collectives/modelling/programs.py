"""What a rank does in a round of each method, for the simulation; receive memory in two slots.

Written from the transports, not from the formulas: the two are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from onesided.collectives.errors import MethodError
from onesided.collectives.modelling.simulation import Actor, Arrivals, Program, Step


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


def _notify(rank: Actor) -> Iterator[Step]:
    yield rank.stores()
    for peer, _ in rank.to:
        if rank.near(peer):
            there = rank.machine.actors[peer]
            when = rank.machine.now + rank.level(peer).notice
            rank.machine.at(when, there, ("counter", rank.rank))
    yield from _puts(rank, near=False)
    yield rank.flush()
    for peer, _ in rank.to:
        if not rank.near(peer):
            yield rank.notify(peer, ("counter", rank.rank))
    for peer in rank.sources:
        yield Arrivals(("counter", peer))


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
    "rma-pscw": _pscw,
    "rma-fence-hier": partial(_fence, puts_first=True),
    "rma-lock-hier": partial(_lock, puts_first=True),
    "rma-fence-paper": _printed_fence,
    "rma-lock-paper": _printed_lock,
}
