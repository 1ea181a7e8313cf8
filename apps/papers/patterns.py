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
from onesided.apps.papers.alltoallv import ITEM, REMARK, Problem, exchange_case, wrong_elements
from onesided.apps.tools.spmv import shipped
from onesided.apps.tools.trace_mesh import trace_mesh
from onesided.sparse import DistMatrix, from_rows, read

BASE = 1 << 31  # more than the elements of a block
#: ``counts[p, q]``: elements that rank p sends to rank q, on all ranks the same array.
Counts = NDArray[np.int64]


def record(counts: Counts) -> dict[str, Any]:
    """Local. For JSON: counts in elements, those to oneself included, and how skewed they are."""
    sent, received = counts.sum(axis=1), counts.sum(axis=0)
    return {
        "counts": counts.tolist(),
        "sent": sent.tolist(),
        "received": received.tolist(),
        "sent_imbalance": imbalance(sent),
        "received_imbalance": imbalance(received),
        "blocks": int(np.count_nonzero(counts)),
    }


def imbalance(totals: Counts) -> float:
    """Local. The most of a rank, divided by the mean; 1.0 where there is nothing."""
    mean = float(totals.mean())
    return float(totals.max()) / mean if mean else 1.0


def problem(counts: Counts, comm: MPI.Intracomm) -> Problem:
    """Local. The exchange as this rank sees it.

    An element tells its sender, its receiver and its place in the block.
    """
    ranks, rank = range(comm.size), comm.rank

    def block(source: int, target: int) -> NDArray[np.float64]:
        """Whole numbers that doubles hold."""
        first = float((source * comm.size + target) * BASE)
        return np.arange(counts[source, target], dtype=np.float64) + first

    return Problem(
        np.concatenate([block(rank, peer) for peer in ranks]),
        counts[rank].tolist(),
        counts[:, rank].tolist(),
        np.concatenate([block(peer, rank) for peer in ranks]),
        int(counts.sum(axis=1).max()) * ITEM,
    )


def nonzeros(matrix: DistMatrix) -> NDArray[np.int64]:
    """Local. Nonzeros of this rank's rows in the columns that each rank owns, its own included.

    That is what a transposition of the matrix sends.
    """
    columns = matrix.local_rows().indices
    counts = np.bincount(matrix.col_partition.owners(columns), minlength=matrix.col_partition.parts)
    return counts.astype(np.int64)


#: By the words of ``--patterns``: how many elements this rank sends to each; before a product, or
#: all of its nonzeros.
PATTERNS: Mapping[str, Callable[[DistMatrix], NDArray[np.int64]]] = {
    "spmv": lambda matrix: matrix.pattern.send_counts,
    "rows": nonzeros,
}


BYTES_REMARK = (
    "spmv: the entries of x that neighbors need; rows: every nonzero to the owner of its column. "
    "GB/s: bytes that the rank that sends most sends, its own block included, per second; vs "
    "memcpy: every rank copies what it sends."
)
#: Nothing is multiplied, so nothing is measured to find out how.
HOW: dict[str, Any] = {"method": "p2p", "kernel": "scipy"}


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where wrong data came."""
    names = [name for name in chosen(options.comm) if name != BASELINE]
    with user_errors():
        subjects = _subjects(comm, options)
    matrices = {
        name: facts | {"patterns": {pattern: record(each) for pattern, each in counts.items()}}
        for name, facts, counts in subjects
    }
    report = Report("bench patterns", options.settings(),
                    {"ranks": comm.size, "matrices": matrices}, remarks=[BYTES_REMARK, REMARK],
                    by="matrix")  # fmt: skip
    cases = [
        exchange_case({"matrix": name, "pattern": pattern}, partial(problem, each), names, options)
        for name, _, counts in subjects for pattern, each in counts.items()
    ]  # fmt: skip
    sweep(comm, options, report, cases, "exchanging")
    report.remarks.append(wrong_elements(report.rows, "the one that its sender made for it"))
    return report.end(comm, options)


def _subjects(
    comm: MPI.Intracomm, options: Options
) -> list[tuple[str, dict[str, Any], dict[str, Counts]]]:
    """Collective. Every matrix: its name, what is told of it, and the counts of its patterns;
    nothing else is kept of it."""
    found = []

    def add(name: str, facts: dict[str, Any], made: DistMatrix) -> None:
        with made as matrix:
            facts |= {
                "shape": list(matrix.shape),
                "nonzeros": matrix.nnz,
                "partition": options.partition,
                "rows": matrix.row_partition.lengths().tolist(),
            }
            counts = {each: np.array(comm.allgather(PATTERNS[each](matrix)))
                      for each in options.patterns}  # fmt: skip
        found.append((name, facts, counts))

    with ExitStack() as stack:
        files = options.files or [str(stack.enter_context(as_file(shipped())))]
        for file, name in zip(files, _names(files), strict=True):
            matrix = read(comm, file, partition=options.partition, **HOW)
            add(name, {"file": Path(file).name}, matrix)
    if options.mesh:
        rows = trace_mesh(comm, options.mesh, options.seed)
        facts = {"generated": "mesh refined along curves", "seed": options.seed}
        matrix = from_rows(comm, rows, partition=options.partition, **HOW)
        add(f"mesh-{options.mesh}", facts, matrix)
    return found


def _names(files: list[str]) -> list[str]:
    """Local. Short names of files, for tables and pictures; a number where two are alike."""
    short = [re.sub(r"\.[A-Za-z]\w*(\.gz)?\Z", "", Path(file).name) for file in files]
    return [each if short.count(each) == 1 else f"{each}-{k}" for k, each in enumerate(short, 1)]
