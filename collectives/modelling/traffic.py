"""What one round of an exchange moves, as far as its cost depends on it.

Every number is that of the rank, or of the node, with the most: a round is over when the last rank
has its data. All fields may be arrays that broadcast, so one object describes a whole sweep. Only
:func:`of_exchange`, which asks the ranks of a persistent exchange, calls MPI.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError
from onesided.collectives.exchange import Exchange


@dataclass(frozen=True)
class Traffic:
    """``near``: between ranks of one node; ``far``: between nodes; bytes and numbers of messages.

    ``own_bytes`` are what a rank sends to itself. ``link_messages`` and ``link_bytes`` cross the
    link of one node in one direction. ``slots`` is the number of receive slots in turn: 1 where
    the receive memory is the caller's.
    """

    ranks: Any
    nodes: Any
    near_messages: Any
    near_bytes: Any
    far_messages: Any
    far_bytes: Any
    own_bytes: Any
    link_messages: Any
    link_bytes: Any
    slots: int = 2

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            numbers = np.asarray(value, float)
            if not np.all((numbers >= 0) & np.isfinite(numbers)):
                raise PatternError(f"{name} of the traffic is {value!r}")
        if self.slots not in (1, 2):
            raise PatternError(f"{self.slots!r} receive slots, neither 1 nor 2")

    @property
    def copied_bytes(self) -> Any:
        """What a rank sends to ranks of its node, itself included."""
        return np.add(self.near_bytes, self.own_bytes)

    @property
    def ranks_per_node(self) -> Any:
        """Ranks of a node, at least one."""
        return np.maximum(np.asarray(self.ranks, float) / np.maximum(self.nodes, 1), 1.0)


def uniform(ranks: Any, ranks_per_node: Any, block_bytes: Any, slots: int = 2) -> Traffic:
    """Local. Every rank sends a block to every rank, itself included (numbers or arrays).

    Source: benchmark 1 of paper 000. The last node may have fewer ranks than the others.
    """
    count = np.asarray(ranks, float)
    if np.any(count < 1) or np.any(np.asarray(ranks_per_node) < 1):
        raise PatternError(f"{ranks!r} ranks on nodes of {ranks_per_node!r}")
    on_node = np.minimum(np.asarray(ranks_per_node, float), count)
    nodes = np.ceil(count / on_node)
    block = np.asarray(block_bytes, float)
    near, across = on_node - 1.0, count - on_node
    last = count - (nodes - 1.0) * on_node
    far = np.where(nodes > 1, count - last, 0.0)
    return Traffic(
        ranks=count,
        nodes=nodes,
        near_messages=near,
        near_bytes=near * block,
        far_messages=far,
        far_bytes=far * block,
        own_bytes=block,
        link_messages=on_node * across,
        link_bytes=on_node * across * block,
        slots=slots,
    )


def of_matrix(sent: Any, nodes: Sequence[int], slots: int = 2) -> Traffic:
    """Local. Of a pattern: ``sent[i, j]`` bytes go from rank i to j; ``nodes[i]`` is i's node."""
    matrix = np.asarray(sent, float)
    if matrix.shape != (len(nodes), len(nodes)):
        raise PatternError(f"a matrix of shape {matrix.shape} for {len(nodes)} ranks")
    numbers = np.array([_row_of(line, nodes, rank) for rank, line in enumerate(matrix)])
    columns = np.array([_row_of(line, nodes, rank) for rank, line in enumerate(matrix.T)])
    return _of_rows(numbers, columns, nodes, slots)


def of_exchange(exchange: Exchange) -> Traffic:
    """Collective. Of what a persistent exchange sends; the same object on every rank."""
    comm, node = exchange.context.comm, exchange.node
    rows = np.zeros((2, 5))
    for row, side in zip(rows, (exchange.send, exchange.recv), strict=True):
        sizes: dict[int, float] = {}
        for block in side.blocks:
            nbytes = block.size * side.dtype.itemsize
            sizes[block.peer] = sizes.get(block.peer, 0.0) + nbytes
        row[4] = sizes.pop(comm.rank, 0.0)
        for peer, size in sizes.items():
            at = 0 if peer in node.rank_of else 2
            row[at : at + 2] += 1.0, size
    of_node = rows[:, 2:4].copy()
    if not node.alone:
        node.comm.Allreduce(MPI.IN_PLACE, of_node)
    most = np.concatenate([rows.max(axis=0), of_node.max(axis=0)])
    comm.Allreduce(MPI.IN_PLACE, most, MPI.MAX)
    nodes = len(np.unique(node.firsts))
    near, near_bytes, far, far_bytes, own, messages, nbytes = most.tolist()
    return Traffic(
        comm.size, nodes, near, near_bytes, far, far_bytes, own,
        link_messages=messages, link_bytes=nbytes, slots=exchange.slots,
    )  # fmt: skip


def _row_of(line: NDArray[Any], nodes: Sequence[int], rank: int) -> list[float]:
    """From bytes per peer: messages and bytes on the node, off it, and bytes to itself."""
    same = np.asarray(nodes) == nodes[rank]
    others = line.copy()
    others[rank] = 0.0
    near, far = others[same], others[~same]
    return [
        float(np.count_nonzero(near)), float(near.sum()),
        float(np.count_nonzero(far)), float(far.sum()), float(line[rank]),
    ]  # fmt: skip


def _of_rows(
    out: NDArray[np.float64], into: NDArray[np.float64], nodes: Sequence[int], slots: int
) -> Traffic:
    """The traffic of ranks whose rows of what they send and receive are known."""
    places = np.unique(np.asarray(nodes), return_inverse=True)[1]
    links = [np.bincount(places, side[:, i]).max() for side in (out, into) for i in (2, 3)]
    near, near_bytes, far, far_bytes, own = np.maximum(out, into).max(axis=0).tolist()
    return Traffic(
        len(nodes), len(set(nodes)), near, near_bytes, far, far_bytes, own,
        link_messages=float(max(links[0], links[2])),
        link_bytes=float(max(links[1], links[3])),
        slots=slots,
    )  # fmt: skip
