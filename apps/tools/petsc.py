"""PETSc's MatMult beside a benchmark: Debian's petsc4py, or another one, under its own MPI.

The program comes as ``data/petsc_product.py``. It runs with a Python that has petsc4py and mpi4py,
as a job of its own: see :mod:`onesided.apps.bench.foreign`. Rank r of that job has the rows of
our rank r, so that both multiply the same matrix in the same partition.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.foreign import (
    Foreign,
    ForeignError,
    Program,
    finished,
    foreign_programs,
    said,
    shared_folder,
)
from onesided.apps.cli.failures import from_rank_0
from onesided.apps.cli.launch import NAMES, is_open_mpi
from onesided.apps.tools.rowblock import RowBlock
from onesided.collectives import agreed

SOURCE = Path(__file__).parents[1] / "data" / "petsc_product.py"
DEBIAN = "/usr/lib/petscdir"  # below it, a folder of each version has one of each kind of build
TOLERANCE = 100.0  # rounding errors allowed, in units of the epsilon of double precision
LARGEST = np.iinfo(np.int32).max
#: What a Python is asked: the kind of its PETSc, and which MPI its mpi4py was built with.
PROBE = """
import petsc4py, mpi4py, json, numpy
from petsc4py import PETSc
from mpi4py import MPI
print(json.dumps({
    "scalar": numpy.dtype(PETSc.ScalarType).name,
    "mpicc": dict(mpi4py.get_config()).get("mpicc") or "",
    "library": MPI.Get_library_version(),
}))
"""


class Petsc(Foreign):
    """PETSc's product with our rows, or a solver. ``facts``: version, MPI, ranks, matrix type."""

    def __init__(
        self, comm: MPI.Intracomm, block: RowBlock, x: NDArray[Any],
        how: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Collective. ``x``: the whole vector, on every rank; ``how`` it is solved for: PETSc's
        names of the method ("ksp") and the preconditioner ("pc"), "rtol", "atol", "maxiter" and
        GMRES's "restart".

        :class:`ForeignError` on every rank where there is no PETSc, where the matrix is not one
        for this build, or where its product is not SciPy's to rounding.
        """
        python = from_rank_0(comm, installed)
        _check(comm, block)
        with shared_folder(comm) as folder:
            _save(comm, block, x, folder)
            with agreed(comm):
                if how is not None and comm.rank == 0:
                    (folder / "solver.json").write_text(json.dumps(dict(how)), "utf-8")
            words = [*python.words, str(SOURCE), str(folder)]
            super().__init__(comm, lambda _: replace(python, words=words))
        norms, sums = self.facts.pop("norms"), self.facts.pop("sums")
        first = block.rows.range(comm.rank)[0]
        mine = _error(block, x, first, norms[comm.rank], sums[comm.rank])
        error = float(np.max(comm.allgather(mine)))  # NaN stays
        if not error <= TOLERANCE * float(np.finfo(np.float64).eps):
            self.close()
            raise ForeignError(f"its product has a relative error of {error:.1e}")


def question(kind: str, count: int = 1, lead: float = 0.0) -> str:
    """Local. Asks, after ``lead`` seconds, for those of one "product" of ``count`` in a row, of so
    many iterations of "cg" for b = x, or how far their "residual" lies off their recurrence's; of a
    solution as was told, "solve", or its relative residual, "rest", or its iterations, "steps"."""
    return f"{kind} {count} {lead}"


def installed() -> Program:
    """Local. The first Python with petsc4py that works, of every python3 on PATH but our own, and
    of the builds of PETSc that Debian's default link may not name; :class:`ForeignError` tells what
    each lacked."""
    failures: dict[str, None] = {}
    builds = [{}, *({"PETSC_DIR": str(path)} for path in sorted(Path(DEBIAN).glob("*/*")))]
    for python in foreign_programs("python3"):
        for variables in builds:
            try:
                return _probed(python, variables)
            except ForeignError as error:
                failures[f"{python.name}: {error}"] = None
    tried = "; ".join(failures) or "no python3 on PATH, other than this environment's own"
    raise ForeignError(f"petsc4py with real scalars, and mpi4py beside it, are not there: {tried}")


def _probed(python: Path, variables: Mapping[str, str]) -> Program:
    """Local. What this Python has; :class:`ForeignError` where it is not what is needed."""
    done = finished([str(python), "-c", PROBE], variables)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        words = done.stderr.strip().splitlines()
        raise ForeignError(words[-1] if words else f"exit code {done.returncode}")
    kind = json.loads(lines[-1])
    if kind["scalar"] != "float64":
        raise ForeignError(f"PETSc's scalars are {kind['scalar']}")
    return Program(_launcher(kind["mpicc"], kind["library"]), [str(python)], variables)


def _launcher(compiler: str, library: str) -> Path:
    """Local. The launcher of the MPI of this compiler, whose library says what it is."""
    folders = [Path(compiler).resolve().parent, Path(compiler).parent] if compiler else []
    beside = (folder / name for folder in folders for name in NAMES)
    for path in (*filter(partial(os.access, mode=os.X_OK), beside), *foreign_programs(*NAMES)):
        if is_open_mpi(said([str(path), "--version"])) == ("Open MPI" in library):
            return path
    raise ForeignError(f"no launcher of {library.splitlines()[0]}")


def _check(comm: MPI.Intracomm, block: RowBlock) -> None:
    """Collective. PETSc's common build has real scalars and 32-bit indices."""
    if block.entries.dtype != np.float64:
        kind = block.entries.dtype
        raise ForeignError(f"it is compared with float64 alone, the matrix is {kind}")
    if comm.allreduce(max(block.entries.nnz, *block.shape), op=MPI.MAX) > LARGEST:
        raise ForeignError("its indices have 32 bits")


def _save(comm: MPI.Intracomm, block: RowBlock, x: NDArray[Any], folder: Path) -> None:
    """Collective. Every rank's part, as the program loads it."""
    start, stop = columns = block.columns.range(comm.rank)
    with agreed(comm):
        np.savez(
            folder / f"{comm.rank}.npz", data=block.entries.data, x=x[start:stop],
            indptr=block.entries.indptr.astype(np.int32, copy=False),
            indices=block.entries.indices.astype(np.int32, copy=False),
            shape=np.array(block.shape), rows=np.array(block.rows.range(comm.rank)),
            columns=np.array(columns),
        )  # fmt: skip


def _error(block: RowBlock, x: NDArray[Any], first: int, norm: float, total: float) -> float:
    """Local. Of both checksums of rows from ``first`` on, relative to that of |A| |x|."""
    expected = block.entries @ x
    scale = float(np.linalg.norm(abs(block.entries) @ np.abs(x))) or 1.0
    weights = np.cos(np.arange(first, first + len(expected)))
    errors = (
        abs(norm - float(np.linalg.norm(expected))) / scale,
        abs(total - float(weights @ expected)) / (scale * max(1.0, float(np.linalg.norm(weights)))),
    )
    return max(errors)
