"""Who sends how much to whom: the exchange patterns of a matrix, and pictures of them in text.

Figure 4 of paper 000 shows the counts of a matrix as heat maps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.evidence.exchange import Problem
from onesided.sparse import DistMatrix

ITEM = 8  # bytes of an element
BASE = 1 << 31  # more than the elements of a block
MOST_RANKS = 64  # that are drawn in text
SHADES = " .:-=+*#%@"


@dataclass(frozen=True, eq=False)
class Traffic:
    """``counts[p, q]``: elements that rank p sends to rank q, on all ranks the same array."""

    counts: NDArray[np.int64]

    @property
    def sent(self) -> NDArray[np.int64]:
        """Local. Elements that each rank sends, to itself too."""
        totals: NDArray[np.int64] = self.counts.sum(axis=1)
        return totals

    @property
    def received(self) -> NDArray[np.int64]:
        """Local. Elements that each rank gets, from itself too."""
        totals: NDArray[np.int64] = self.counts.sum(axis=0)
        return totals

    def record(self) -> dict[str, Any]:
        """Local. For JSON: counts in elements, and how skewed they are."""
        return {
            "counts": self.counts.tolist(),
            "sent": self.sent.tolist(),
            "received": self.received.tolist(),
            "sent_imbalance": imbalance(self.sent),
            "received_imbalance": imbalance(self.received),
            "blocks": int(np.count_nonzero(self.counts)),
        }

    def problem(self, rank: int) -> Problem:
        """Local. The exchange as rank ``rank`` sees it.

        An element tells its sender, its receiver and its place in the block.
        """
        ranks = len(self.counts)
        sent = [_block(ranks, rank, peer, self.counts[rank, peer]) for peer in range(ranks)]
        expected = [_block(ranks, peer, rank, self.counts[peer, rank]) for peer in range(ranks)]
        return Problem(
            np.concatenate(sent),
            self.counts[rank].tolist(),
            self.counts[:, rank].tolist(),
            np.concatenate(expected),
            int(self.sent.max()) * ITEM,
        )

    def heat_map(self) -> str:
        """Local. A row for every sender, a column for every receiver, and the sums beside them.

        Shades are logarithmic, from the least that is sent to the most.
        """
        ranks = len(self.counts)
        skew = (
            f"most / mean: {imbalance(self.sent):.2f} sent, "
            f"{imbalance(self.received):.2f} received"
        )
        if ranks > MOST_RANKS:
            return f"counts of {ranks} ranks are not drawn; {skew}"
        width = max(len(str(int(self.sent.max()))), len("sends"))
        head = f"{'':5} {'':{2 * ranks}} {'sends':>{width}} {'gets':>{width}}"
        lines = [head]
        for rank, (row, sent, got) in enumerate(
            zip(_shades(self.counts), self.sent, self.received, strict=True)
        ):
            lines.append(f"{rank:5} {row} {sent:{width}} {got:{width}}")
        return "\n".join([*lines, skew])


def _block(ranks: int, source: int, target: int, count: int) -> NDArray[np.float64]:
    """Local. What rank ``source`` sends to rank ``target``; whole numbers that doubles hold."""
    first = float(source * ranks + target) * BASE
    return np.arange(count, dtype=np.float64) + np.float64(first)


def imbalance(totals: NDArray[np.int64]) -> float:
    """Local. The most of a rank, divided by the mean; 1.0 where there is nothing."""
    mean = float(totals.mean())
    return float(totals.max()) / mean if mean else 1.0


def _shades(counts: NDArray[np.int64]) -> list[str]:
    """Local. Two characters for each number, blank for zero alone."""
    most = float(counts.max(initial=1))
    least = float(counts[counts > 0].min(initial=most))
    span = np.log(most / least) if most > least else 1.0
    scaled = np.log(np.maximum(counts, least) / least) / span if most > least else counts * 0 + 1.0
    index = np.where(counts > 0, 1 + np.rint(scaled * (len(SHADES) - 2)).astype(int), 0)
    return ["".join(2 * SHADES[shade] for shade in row) for row in index]


def halo(matrix: DistMatrix) -> NDArray[np.int64]:
    """Local. Elements that this rank sends to each other one before a product."""
    return matrix.pattern.send_counts


def nonzeros(matrix: DistMatrix) -> NDArray[np.int64]:
    """Local. Nonzeros of this rank's rows in the columns that each rank owns, its own included.

    That is what a transposition of the matrix sends.
    """
    columns = matrix.local_rows().indices
    counts = np.bincount(matrix.col_partition.owners(columns), minlength=matrix.col_partition.parts)
    return counts.astype(np.int64)


#: By the words of ``--patterns``: how many elements this rank sends to each.
PATTERNS: Mapping[str, Callable[[DistMatrix], NDArray[np.int64]]] = {
    "spmv": halo,
    "rows": nonzeros,
}


def traffic(comm: MPI.Intracomm, pattern: str, matrix: DistMatrix) -> Traffic:
    """Collective. What all ranks send to each other by a pattern of the matrix."""
    mine = np.ascontiguousarray(PATTERNS[pattern](matrix))
    counts = np.empty((comm.size, comm.size), np.int64)
    comm.Allgather(mine, counts)
    return Traffic(counts)
