"""What a distributed matrix costs on each rank, and who sends how much to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.sparse.moving import of_all
from onesided.sparse.partition import index_dtype

_COLUMNS = ("rank", "rows", "nonzeros", "ghosts", "neighbors", "bytes", "sent")
_MOST_RANKS = 32  # that are printed one by one


@dataclass(frozen=True, eq=False)
class MatrixReport:
    """One number per rank in each array; the same on all ranks. As text, a table.

    ``ghosts``: entries of x that come from others in a product; ``neighbors``: ranks that it
    exchanges with; ``product_bytes``: what a product reads and writes at least, on this rank
    (matrix, x, y, what is packed for others, ghosts); ``sent[p, q]``: bytes that rank ``p`` sends
    to rank ``q`` in a product.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     int(A.report().nonzeros.sum())
    22
    """

    shape: tuple[int, int]
    dtype: str
    method: str
    kernel: str
    rows: NDArray[np.int64]
    nonzeros: NDArray[np.int64]
    ghosts: NDArray[np.int64]
    neighbors: NDArray[np.int64]
    product_bytes: NDArray[np.int64]
    sent: NDArray[np.int64]

    @property
    def imbalance(self) -> float:
        """The most nonzeros of a rank, divided by their mean; 1.0 where there are none."""
        most, mean = float(self.nonzeros.max()), float(self.nonzeros.mean())
        return most / mean if mean else 1.0

    def __str__(self) -> str:
        """A head of two lines, a line per rank (up to 32), and the sums; 80 columns hold it."""
        head = (
            f"{self.shape[0]} x {self.shape[1]}, {self.nonzeros.sum()} nonzeros, {self.dtype}, "
            f"{len(self.rows)} ranks\nmethod {self.method}, kernel {self.kernel}"
        )
        columns = [self.rows, self.nonzeros, self.ghosts, self.neighbors, self.product_bytes]
        table = np.stack([*columns, self.sent.sum(axis=1)])
        ranks = range(len(self.rows) if len(self.rows) <= _MOST_RANKS else 0)
        lines: list[tuple[str, ...]] = [_COLUMNS]
        lines += [(str(rank), *map(str, table[:, rank])) for rank in ranks]
        lines += [("all", *map(str, table.sum(axis=1))), ("most", *map(str, table.max(axis=1)))]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        aligned = ["  ".join(map(str.rjust, line, widths)) for line in lines]
        return "\n".join([head, *aligned, f"imbalance {self.imbalance:.3f}"])


def report(matrix: Any) -> MatrixReport:
    """Collective. What a DistMatrix, whose module imports this one, costs on each rank, for one
    vector; the same on all ranks."""
    pattern, nonzeros = matrix.pattern, len(matrix.values)
    rows = matrix.row_range[1] - matrix.row_range[0]
    item = matrix.dtype.itemsize
    index = np.dtype(index_dtype(max(pattern.n_local, nonzeros))).itemsize
    sent = pattern.send_counts * item
    entries = nonzeros * (item + index) + (rows + 1) * index
    moved = entries + (rows + pattern.n_local) * item + int(sent.sum())
    numbers = [rows, nonzeros, len(pattern.ghosts), pattern.neighbors, moved]
    everyone = of_all(matrix.comm, np.concatenate([numbers, sent]).astype(np.int64))
    columns, sent = everyone.T[: len(numbers)].copy(), everyone[:, len(numbers) :].copy()
    names = matrix.shape, matrix.dtype.name, matrix.method, matrix.kernel_name
    fields: list[Any] = [*names, *columns, sent]
    return MatrixReport(*fields)
