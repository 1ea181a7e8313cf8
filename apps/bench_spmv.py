"""``onesided bench spmv``: the distributed product against SciPy's serial one on rank 0.

The matrix is the 27-point stencil on a cube of grid points. While rank 0 multiplies alone, the
other ranks sleep. With ``--suite``: see :mod:`onesided.apps.bench_spmv_suite`.
"""

from __future__ import annotations

from argparse import Namespace
from statistics import median

import numpy as np
from mpi4py import MPI

from onesided.apps.bench_spmv_suite import run_suite
from onesided.apps.options import settings
from onesided.apps.progress import console
from onesided.apps.report import Report, Row, check_json
from onesided.apps.rowblock import Maker
from onesided.apps.selection import BASELINE, chosen, hints, prepare, release
from onesided.apps.spmv import REMARK, halo_setup, label, product, traffic, vector
from onesided.apps.timing import Subject, timed
from onesided.sparse import DistMatrix, Partition, from_rows, stencil27

SERIAL = "SciPy"
METHODS = "rma-fence,rma-notify"  # where --comm says nothing


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command."""
    check_json(comm, options)
    if options.suite:
        return run_suite(comm, options)
    options.comm = options.comm or METHODS
    names = chosen(options.comm)
    points = options.points
    info = hints(options)
    rows = stencil27(points, Partition.even(points**3, comm.size).range(comm.rank))
    candidates = prepare(
        comm,
        names,
        Maker(lambda method: from_rows(comm, rows, method=method, info=info), info),
        DistMatrix.Free,
    )
    matrices = {each.method: each.made for each in candidates if each.made is not None}
    first = next(iter(matrices.values()))
    x = vector(*first.col_range, np.dtype(np.float64))
    subjects = [serial(comm, points)]
    subjects += [Subject(method, product(each, x)) for method, each in matrices.items()]
    out = console(options.terminal) if comm.rank == 0 else None
    alone, *lists = timed(comm, subjects, options, out, "multiplying")
    times = dict(zip(matrices, lists, strict=True))
    report = Report(
        "bench spmv",
        settings(options),
        {"stencil": 27, "rows": points**3, "nonzeros": first.nnz, "ranks": comm.size},
        remarks=[REMARK],
    )
    nbytes = traffic(first)
    setups = {method: halo_setup(comm, each) for method, each in matrices.items()}
    labels = {method: label(method, each) for method, each in matrices.items()}
    release(comm, candidates, DistMatrix.Free)
    serial_labels = {"method": SERIAL, "product": "serial, rank 0"}
    report.rows.append(Row(serial_labels, alone, nbytes=nbytes, against={SERIAL: alone}))
    for each in candidates:
        if each.reason:
            report.rows.append(Row({"method": each.method}, reason=each.reason))
            continue
        mine = times[each.method]
        against = {SERIAL: alone} | {name: times[name] for name in (BASELINE,) if name in times}
        setup = setups[each.method] + each.freeing
        report.rows.append(Row(labels[each.method], mine, setup, nbytes, against))
        speed = median(other / one for one, other in zip(mine, alone, strict=True))
        report.remarks.append(f"{each.method}: {speed:.2f} times as fast as {SERIAL} on one rank")
    report.finish(comm, out, options.json)
    return 0


def serial(comm: MPI.Intracomm, points: int) -> Subject:
    """Local. SciPy's product with the whole matrix, on rank 0 alone."""
    if comm.rank != 0:
        return Subject(SERIAL, lambda: None, alone=True)
    whole = stencil27(points)
    x = vector(0, points**3, np.dtype(np.float64))
    return Subject(SERIAL, lambda: whole @ x, alone=True)
