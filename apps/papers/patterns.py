"""``onesided bench patterns``: benchmark 2 of paper 000, exchanges with the patterns of matrices.

Two patterns of each matrix, in its partition over the ranks: what the neighbors need for a product
(the halo), and a full row-wise exchange, every nonzero to the rank that owns its column. All
methods in turns, the contents verified; the counts as heat maps (Figure 4), the times side by side
(Figure 3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.selection import BASELINE, chosen
from onesided.apps.bench.sweep import sweep
from onesided.apps.cli.failures import user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Report
from onesided.apps.papers.exchange import REMARK, Problem, exchange_case, wrong_elements
from onesided.apps.tools.spmv import shipped
from onesided.apps.tools.trace_mesh import trace_mesh
from onesided.sparse import DistMatrix, from_rows, read

# Who sends how much to whom: the exchange patterns of a matrix.

ITEM = 8  # bytes of an element
BASE = 1 << 31  # more than the elements of a block


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


def _block(ranks: int, source: int, target: int, count: int) -> NDArray[np.float64]:
    """Local. What rank ``source`` sends to rank ``target``; whole numbers that doubles hold."""
    first = float(source * ranks + target) * BASE
    return np.arange(count, dtype=np.float64) + np.float64(first)


def imbalance(totals: NDArray[np.int64]) -> float:
    """Local. The most of a rank, divided by the mean; 1.0 where there is nothing."""
    mean = float(totals.mean())
    return float(totals.max()) / mean if mean else 1.0


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


BYTES_REMARK = (
    "spmv: the entries of x that neighbors need; rows: every nonzero to the owner of its column. "
    "GB/s: bytes that the rank that sends most sends, its own block included, per second; vs "
    "memcpy: every rank copies what it sends."
)
#: Nothing is multiplied, so nothing is measured to find out how.
HOW: dict[str, Any] = {"method": "p2p", "kernel": "scipy"}


@dataclass
class Subject:
    """A matrix by name, what is told about it, and its patterns by name."""

    name: str
    facts: dict[str, Any]
    traffic: dict[str, Traffic]

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        patterns = {name: each.record() for name, each in self.traffic.items()}
        return {**self.facts, "patterns": patterns}


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where wrong data came."""
    names = [name for name in chosen(options.comm) if name != BASELINE]
    with user_errors():
        subjects = _subjects(comm, options)
    pairs = [(each, pattern) for each in subjects for pattern in each.traffic]
    report = Report(
        "bench patterns",
        options.settings(),
        {"ranks": comm.size, "matrices": {each.name: each.record() for each in subjects}},
        remarks=[BYTES_REMARK, REMARK],
        by="matrix",
    )
    cases = [
        exchange_case(
            {"matrix": each.name, "pattern": pattern},
            partial(_problem, each.traffic[pattern]),
            names, options,
        )
        for each, pattern in pairs
    ]  # fmt: skip
    sweep(comm, options, report, cases, "exchanging")

    report.remarks.append(wrong_elements(report.rows, "the one that its sender made for it"))
    return report.end(comm, options)


def _problem(of: Traffic, comm: MPI.Intracomm) -> Problem:
    return of.problem(comm.rank)


def _subjects(comm: MPI.Intracomm, options: Options) -> list[Subject]:
    """Collective. Every matrix, of which nothing is kept but the patterns."""
    found = []
    with ExitStack() as stack:
        files = options.files or [str(stack.enter_context(as_file(shipped())))]
        for file, name in zip(files, _names(files), strict=True):
            matrix = read(comm, file, partition=options.partition, **HOW)
            found.append(_subject(comm, options, name, {"file": Path(file).name}, matrix))
    if options.mesh:
        rows = trace_mesh(comm, options.mesh, options.seed)
        matrix = from_rows(comm, rows, partition=options.partition, **HOW)
        facts = {"generated": "mesh refined along curves", "seed": options.seed}
        found.append(_subject(comm, options, f"mesh-{options.mesh}", facts, matrix))
    return found


def _subject(
    comm: MPI.Intracomm, options: Options, name: str, facts: dict[str, Any], made: DistMatrix
) -> Subject:
    """Collective. The patterns of a matrix, which is freed."""
    with made as matrix:
        facts |= {
            "shape": list(matrix.shape),
            "nonzeros": matrix.nnz,
            "partition": options.partition,
            "rows": matrix.row_partition.lengths().tolist(),
        }
        wanted = dict.fromkeys(options.patterns)
        return Subject(name, facts, {each: traffic(comm, each, matrix) for each in wanted})


def _names(files: list[str]) -> list[str]:
    """Local. Short names of files, for tables and pictures; a number where two are alike."""
    short = [re.sub(r"\.[A-Za-z]\w*(\.gz)?\Z", "", Path(file).name) for file in files]
    return [
        name if short.count(name) == 1 else f"{name}-{index}"
        for index, name in enumerate(short, 1)
    ]
