"""``onesided generate``: matrices made by rule, written to files by all ranks."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
from mpi4py import MPI

from onesided.apps.cli.failures import CommandError, user_errors
from onesided.collectives import agreed
from onesided.sparse.files.marketwriter import Form, write_matrixmarket
from onesided.sparse.files.store import write
from onesided.sparse.generators.grids import stencil7, stencil27
from onesided.sparse.generators.mesh import trace_mesh
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.partition import Partition


@dataclass(frozen=True)
class Kind:
    """A family of matrices: how a rank's rows are made, and how they are written."""

    make: Callable[[MPI.Intracomm, Namespace], Any]
    form: Form
    words: Callable[[Namespace], str]


def _mesh(comm: MPI.Intracomm, options: Namespace) -> Any:
    return trace_mesh(comm, options.size, options.seed)


def _grid(
    stencil: Callable[[int, tuple[int, int]], Any]
) -> Callable[[MPI.Intracomm, Namespace], Any]:
    def make(comm: MPI.Intracomm, options: Namespace) -> Any:
        rows = Partition.even(options.size**3, comm.size)
        return stencil(options.size, rows.range(comm.rank))

    return make


def _cube(options: Namespace) -> str:
    return f"{options.size} x {options.size} x {options.size} grid"


KINDS = {
    "grid7": Kind(_grid(stencil7), Form(symmetric=True), lambda o: f"7-point {_cube(o)}"),
    "grid27": Kind(_grid(stencil27), Form(symmetric=True), lambda o: f"27-point {_cube(o)}"),
    "mesh": Kind(
        _mesh,
        Form(symmetric=True, pattern=True),
        lambda o: (
            f"dual graph of a triangulation refined along curves, {o.size} triangles, seed {o.seed}"
        ),
    ),
}

Writer = Callable[[MPI.Intracomm, str, Any, Form, list[str]], None]


def _market(comm: MPI.Intracomm, path: str, rows: Any, form: Form, comments: list[str]) -> None:
    write_matrixmarket(comm, path, rows, form=form, comments=comments)


def _store(comm: MPI.Intracomm, path: str, rows: Any, form: Form, comments: list[str]) -> None:
    blocks = Partition.from_lengths(np.array(comm.allgather(rows.shape[0]), np.int64))
    with DistMatrix(comm, rows, blocks, blocks, method="p2p", kernel="scipy") as matrix:
        write(matrix, path)
    with agreed(comm):
        if comm.rank == 0:
            with h5py.File(path, "r+") as file:
                file.attrs["comments"] = comments


WRITERS: dict[str, Writer] = {".mtx": _market, ".h5": _store}


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command."""
    kind = KINDS[options.kind]
    endings = [ending for ending in WRITERS if options.output.endswith(ending)]
    if not endings:
        raise CommandError(f"{options.output}: its name must end with {' or '.join(WRITERS)}")
    comments = [
        f"Generated, not from any application: {kind.words(options)}",
        f"onesided generate {options.kind} --size {options.size} --seed {options.seed}",
    ]
    with user_errors():
        rows = kind.make(comm, options)
        WRITERS[endings[0]](comm, options.output, rows, kind.form, comments)
    shape = comm.allreduce(rows.shape[0]), rows.shape[1]
    nonzeros = comm.allreduce(rows.nnz)
    if comm.rank == 0:
        print(
            f"{options.output}: {shape[0]} x {shape[1]}, {nonzeros} nonzeros, {kind.words(options)}"
        )
    return 0
