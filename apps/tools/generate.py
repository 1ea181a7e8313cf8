"""``onesided generate``: matrices made by rule, written to files by all ranks."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from mpi4py import MPI

from onesided.apps.bench.timing import clocked
from onesided.apps.cli.failures import CommandError, user_errors
from onesided.apps.cli.options import Options, edge
from onesided.apps.cli.report import Report, Row
from onesided.apps.cli.statistics import Verdict
from onesided.apps.tools.spmv import vector
from onesided.apps.tools.trace_mesh import trace_mesh
from onesided.collectives import agreed
from onesided.sparse import read
from onesided.sparse.files.marketwriter import write_matrixmarket
from onesided.sparse.files.store import write
from onesided.sparse.grids import stencil7, stencil27
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.partition import Partition

ROUNDING = 1e-13  # of sums of products


def _grid(
    stencil: Callable[[int, tuple[int, int]], Any], comm: MPI.Intracomm, points: int, seed: int
) -> Any:
    return stencil(points, Partition.even(points**3, comm.size).range(comm.rank))


#: By the name of a kind what makes a rank's rows of a size and a seed, and what they are.
KINDS: dict[str, tuple[Callable[[MPI.Intracomm, int, int], Any], str]] = {
    "grid7": (partial(_grid, stencil7), "7-point {0} x {0} x {0} grid"),
    "grid27": (partial(_grid, stencil27), "27-point {0} x {0} x {0} grid"),
    "mesh": (trace_mesh,
             "dual graph of a triangulation refined along curves, {0} triangles, seed {1}"),
}


def _store(comm: MPI.Intracomm, path: str, rows: Any, *, comments: list[str]) -> None:
    """Collective. The file gets its name when its comments are there, too."""
    blocks = Partition.from_lengths(np.array(comm.allgather(rows.shape[0]), np.int64))
    file = Path(path).resolve()
    draft = file.with_name(f"{file.stem}.{comm.bcast(secrets.token_hex(4))}.h5")
    with agreed(comm):
        if comm.rank == 0 and file.exists() and not file.is_file():
            raise OSError(f"{path} is not a regular file; it is not replaced")
    with DistMatrix(comm, rows, blocks, blocks, method="p2p", kernel="scipy") as matrix:
        write(matrix, draft)
    with agreed(comm):
        if comm.rank == 0:
            try:
                with h5py.File(draft, "r+") as content:
                    content.attrs["comments"] = comments
                draft.replace(file)
            finally:
                draft.unlink(missing_ok=True)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; 1 where a file that is read again has another matrix."""
    (make, text), size = KINDS[options.kind], edge(options)
    write_text = partial(write_matrixmarket, symmetric=True, pattern=options.kind == "mesh")
    writers = {".mtx": write_text, ".h5": _store}
    writer: Any = writers.get(Path(options.output).suffix)
    if writer is None:
        raise CommandError(f"{options.output}: its name must end with {' or '.join(writers)}")
    words = text.format(size, options.seed)
    comments = [
        f"Generated, not from any application: {words}",
        f"onesided generate {options.kind} --shape {size} --seed {options.seed}",
    ]
    with user_errors():
        rows, making = clocked(comm, partial(make, comm, size, options.seed))
        write_rows = partial(writer, comm, options.output, rows, comments=comments)
        _, writing = clocked(comm, write_rows)
    shape = comm.allreduce(rows.shape[0]), rows.shape[1]
    nonzeros = comm.allreduce(rows.nnz)
    pattern = {"matrix": words, "shape": list(shape), "nonzeros": nonzeros, "ranks": comm.size}
    report = Report("generate", options.settings(), pattern)
    name = Path(options.output).name
    report.remarks = [f"{name}: {shape[0]} x {shape[1]}, {nonzeros} nonzeros, {words}"]
    report.rows = [Row({"step": "make"}, [making]), Row({"step": "write"}, [writing])]
    if options.verify:
        report.verdicts["products with the file's matrix"] = _verdict(comm, options, rows)
    return report.end(comm, options)


def _verdict(comm: MPI.Intracomm, options: Options, rows: Any) -> Verdict:
    """Collective. y A x, with A as it was made and as it was read; their rows may be on any ranks.

    Relative to the same with all absolute values.
    """
    first, count = comm.exscan(rows.shape[0]) or 0, rows.shape[1]
    with user_errors(), read(comm, options.output, method="p2p") as matrix:
        theirs = matrix @ vector(*matrix.col_range, matrix.dtype)
        mine = vector(*matrix.row_range, matrix.dtype, 1.0)
        found = float(comm.allreduce(float(mine @ theirs)))
    x, y = vector(0, count, rows.dtype), vector(first, first + rows.shape[0], rows.dtype, 1.0)
    wanted = float(comm.allreduce(float(y @ (rows @ x))))
    scale = float(comm.allreduce(float(np.abs(y) @ (abs(rows) @ np.abs(x)))))
    return Verdict(abs(found - wanted) / (scale or 1.0), ROUNDING)
