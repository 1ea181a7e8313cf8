"""Reading a plain Matrix Market file on all ranks, against SciPy's readers on rank 0 alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from mpi4py import MPI
from scipy import sparse

from onesided.apps.bench.foreign import every_core, shared_folder
from onesided.apps.bench.race import Contestant, race, timed, unchecked
from onesided.apps.cli.failures import user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console
from onesided.apps.cli.report import Row, compared
from onesided.apps.tools.spmv_contest import READ_AIM, READ_BEFORE_AIM, READ_ENTRIES, shrink
from onesided.collectives.hardware import Layout
from onesided.sparse import Partition, read, write_matrixmarket
from onesided.sparse.files.dealing import BLOCK_BYTES
from onesided.sparse.files.marketreader import read_triplets

PER_ROW = 10  # entries of a row
FEW = 3  # rounds with a reader that takes long
#: What is timed of ours: everything up to a matrix that multiplies, and the entries alone.
WHOLE, ENTRIES = "read", "read, entries alone"
REMARK = (
    "Reading: a plain file of numbers with all digits. read ends with a matrix that multiplies; "
    "entries alone, as mmread, with triplets. SciPy reads on rank 0, with threads as it likes, "
    "while the other ranks sleep; its reader before 1.12 in rounds of its own, fewer."
)


def reading_rows(
    comm: MPI.Intracomm, options: Options, methods: Sequence[str], wanted: bool
) -> list[Row]:
    """Collective. A row of the report for each of ours against each of SciPy's readers.

    By the first of the methods.
    """
    size = max(PER_ROW, READ_ENTRIES // shrink(options) // PER_ROW)
    case = f"reading {PER_ROW * size} entries"
    if len(Layout.of(comm).ranks_per_node) > 1:
        return [Row({"case": case}, reason="the file is made on one node only")]
    with user_errors(), shared_folder(comm) as folder:
        path = folder / "generated.mtx"
        comments = ["Generated, not from any application: random entries"]
        write_matrixmarket(comm, path, _random_rows(comm, size), comments=comments)
        return _timed_rows(comm, options, methods[0], wanted, case, path)


def _random_rows(comm: MPI.Intracomm, size: int) -> sparse.csr_array:
    """Local. This rank's rows of a square matrix, with random values in random places."""
    start, stop = Partition.even(size, comm.size).range(comm.rank)
    draw = np.random.default_rng([comm.rank, 5])
    width = size // PER_ROW
    first = np.arange(PER_ROW, dtype=np.int64) * width
    columns = first + draw.integers(0, width, (stop - start, PER_ROW))
    values = draw.standard_normal(columns.size)
    indptr = np.arange(0, columns.size + 1, PER_ROW, dtype=np.int64)
    return sparse.csr_array((values, columns.ravel(), indptr), shape=(stop - start, size))


def _timed_rows(
    comm: MPI.Intracomm, options: Options, method: str, wanted: bool, case: str, path: Path
) -> list[Row]:
    """Collective. The readers in turns on one file."""

    def whole() -> None:
        read(comm, path, method=method).Free()

    why = unchecked("tests compare what is read with SciPy's matrix")
    contestants = [
        Contestant(WHOLE, whole, why),
        Contestant(ENTRIES, lambda: read_triplets(comm, path, None, BLOCK_BYTES), why),
        Contestant(READ_AIM.opponent, partial(_mmread, path), why, alone=True),
    ]
    out = console(options.terminal) if comm.rank == 0 else None
    races = {READ_AIM: timed(comm, contestants, options, out, case)}
    reader = comm.bcast(_reader_before() is not None)
    if reader:  # so slow that a few rounds of its own must do
        old = Contestant(READ_BEFORE_AIM.opponent, partial(_read_before, path), why, alone=True)
        pair = [replace(each, warm_up=each.call) for each in contestants[:2]]
        pair.append(replace(old, warm_up=lambda: None))
        races[READ_BEFORE_AIM] = race(comm, pair, iterations=FEW)
    nbytes = path.stat().st_size
    rows: list[Row] = []
    for name in (WHOLE, ENTRIES):
        labels = {"case": case, "method": f"{method}, {name}" if name == WHOLE else name}
        for aim, found in races.items():
            ours, theirs = found.times[name], found.times[aim.opponent]
            rows.append(compared(labels, ours, theirs, aim, wanted=wanted, nbytes=nbytes))
    if not reader:
        labels = {"case": case, "opponent": READ_BEFORE_AIM.opponent}
        rows.append(Row(labels, reason="this SciPy has no such reader any more"))
    return rows


def _mmread(path: Path) -> None:
    """Local. SciPy's reader, on all cores though a launcher may have bound us to one."""
    with every_core():
        scipy.io.mmread(path)


def _read_before(path: Path) -> None:
    """Local. By the reader that SciPy had before 1.12."""
    _reader_before()().read(str(path))


def _reader_before() -> Any:
    """Local. The class of that reader, or None."""
    try:
        return getattr(import_module("scipy.io._mmio"), "MMFile", None)
    except ImportError:
        return None
