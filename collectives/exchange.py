"""One exchange on one rank: its sides, matched with the peers' and agreed on by all ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.buffers import Side
from onesided.collectives.chunks import Cuts
from onesided.collectives.context import Context, Node
from onesided.collectives.errors import PatternError
from onesided.collectives.hints import Hints
from onesided.collectives.memory import find_region
from onesided.collectives.pattern import Block, Pattern
from onesided.collectives.topology import neighbors


@dataclass
class Exchange:
    """All that a transport needs to know, the same form for every initialization function.

    ``slots`` is the number of receive slots in turn (1 with a receive buffer of the caller's),
    ``peers`` the ranks that exchange data with this one in either direction, without itself, in
    the order in which they are served: the next rank first, so that not all ranks turn to rank 0
    at once. ``neighborhood`` tells that the communicator's topology says who the peers are.
    ``cuts`` says how this rank cuts its send blocks, ``cuts_to`` and ``cuts_from`` which blocks
    travel in chunks, and ``most_chunks`` how many chunks any rank has.
    """

    method: str
    context: Context
    send: Side
    recv: Side
    hints: Hints
    number: int
    slots: int = 1
    neighborhood: bool = False
    peers: list[int] = field(default_factory=list)
    cuts: Cuts | None = None
    cuts_to: dict[int, Cuts] = field(default_factory=dict)
    cuts_from: dict[int, Cuts] = field(default_factory=dict)
    most_chunks: int = 1

    @property
    def chunks(self) -> int:
        """Into how many chunks this rank cuts what it sends."""
        return 1 if self.cuts is None else len(self.cuts.stops)

    @property
    def edges(self) -> tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]]:
        """The topology's (destinations, keys) and (sources, keys)."""
        destinations, send_keys, sources, recv_keys = neighbors(self.context.comm)
        return (destinations, send_keys), (sources, recv_keys)

    @property
    def owned(self) -> bool:
        """True where the request owns the receive memory."""
        return self.recv.array is None

    @property
    def in_window_memory(self) -> bool:
        """True where the receive array comes from :func:`~onesided.collectives.empty`."""
        return self.recv.array is not None and find_region(self.recv.array) is not None

    @property
    def node(self) -> Node:
        """The node of this rank, real or emulated."""
        return self.context.node(self.hints.ranks_per_node)

    @property
    def rank(self) -> int:
        """This rank."""
        return self.context.comm.rank

    def pattern(self) -> Pattern:
        """Who sends which block to whom."""
        return Pattern(self.send.blocks, self.recv.blocks)

    def blocks_to(self, peer: int) -> list[Block]:
        """The send blocks for a peer, in the order of their keys."""
        return sorted((b for b in self.send.blocks if b.peer == peer), key=lambda b: b.key)

    def blocks_from(self, peer: int) -> list[Block]:
        """The receive blocks from a peer, in the order of their keys."""
        return sorted((b for b in self.recv.blocks if b.peer == peer), key=lambda b: b.key)


def match(exchange: Exchange) -> None:
    """Collective. Compare every receive block with the sender's block, and agree on the outcome.

    Raises :class:`PatternError` on every rank, naming the pair of ranks and both numbers.
    """
    comm = exchange.context.comm
    wanted: list[list[tuple[int, int, str]] | None] = [None] * comm.size
    for block in exchange.recv.blocks:
        entry = (block.key, block.size, exchange.recv.dtype.str)
        wanted[block.peer] = [*(wanted[block.peer] or []), entry]
    asked = comm.alltoall(wanted)
    with agreed(comm, ("counts", exchange.number)):
        for peer in range(comm.size):
            _compare(exchange, peer, asked[peer] or [])
    others = {b.peer for b in (*exchange.send.blocks, *exchange.recv.blocks)} - {comm.rank}
    exchange.peers = sorted(others, key=lambda peer: (peer - comm.rank) % comm.size)


def _compare(exchange: Exchange, peer: int, wanted: list[tuple[int, int, str]]) -> None:
    """What this rank sends to ``peer`` against what ``peer`` expects."""
    sent = {block.key: block.size for block in exchange.send.blocks if block.peer == peer}
    expected = {key: size for key, size, _ in wanted}
    me, kind = exchange.rank, exchange.send.dtype
    for key in sorted(sent.keys() | expected.keys()):
        have, want = sent.get(key, 0), expected.get(key, 0)
        if have != want:
            raise PatternError(
                f"rank {me} sends {have} elements to rank {peer}, which expects {want}"
            )
    for _, _, theirs in wanted:
        if theirs != kind.str:
            raise PatternError(
                f"rank {me} sends {kind} to rank {peer}, which expects {np.dtype(theirs)}"
            )


def learn_counts(
    context: Context, send: Side, sources: list[int], keys: list[int]
) -> tuple[list[int], np.dtype[Any]]:
    """Collective. The counts that the sources send to this rank, and the agreed dtype."""
    comm = context.comm
    mine: list[dict[int, int]] = [{} for _ in range(comm.size)]
    for block in send.blocks:
        mine[block.peer][block.key] = block.size
    theirs = comm.alltoall(mine)
    counts = [
        theirs[peer].get(key, 0) if peer >= 0 else 0
        for peer, key in zip(sources, keys, strict=True)
    ]
    return counts, send.dtype


def agree_on_slots(exchange: Exchange, most: int) -> None:
    """Collective. Two slots only where every rank's request owns its receive memory."""
    mine = min(exchange.hints.slots, most) if exchange.owned else 1
    slots = agree(exchange.context.comm, None, ("slots", exchange.number), mine)
    exchange.slots = min(slots)
