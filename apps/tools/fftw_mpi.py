"""FFTW-MPI in C, built and run beside a benchmark: the real 3-D transform, asked for by the piece.

The program comes as ``data/fftw_mpi.c``. It is built with the first MPI compiler that has FFTW's
MPI library, and runs as a job of its own: see :mod:`onesided.apps.bench.foreign`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mpi4py import MPI

from onesided.apps.bench.foreign import Foreign, ForeignError, Program, finished, foreign_programs

SOURCE = Path(__file__).parents[1] / "data" / "fftw_mpi.c"
LIBRARIES = ("-lfftw3_mpi", "-lfftw3", "-lm")
COMPILERS = ("mpicc", "mpicc.openmpi", "mpicc.mpich")
TOLERANCE = 1e-12  # of a round trip in double precision; the numbers are of order one


class FftwMpi(Foreign):
    """The transforms of FFTW-MPI; questions are "forward" and "backward".

    Before each transform others run for ``lead`` seconds that do not count. ``facts``: version,
    ranks, the way of each direction, error of a round trip.
    """

    def __init__(self, comm: MPI.Intracomm, shape: Sequence[int], lead: float = 0.0) -> None:
        """Collective. :class:`ForeignError` on every rank where it cannot be had."""
        arguments = [str(each) for each in (*shape, lead)]
        super().__init__(comm, lambda folder: build(folder, arguments))
        if not self.facts["error"] < TOLERANCE:
            self.close()
            raise ForeignError(f"it does not work: {self.facts}")


def build(folder: Path, arguments: Sequence[str]) -> Program:
    """Local. Build the program in ``folder`` with the first of MPI's C compilers on PATH that has
    FFTW, and a launcher beside it; :class:`ForeignError` tells what every one lacked.

    Those of a virtual environment are left out: the MPIs of the package index have no FFTW, and a
    library built for another MPI may link.
    """
    failures, program = [], folder / "fftw_mpi"
    for compiler in foreign_programs(*COMPILERS):
        launcher = compiler.with_name(compiler.name.replace("mpicc", "mpiexec"))
        if not os.access(launcher, os.X_OK):
            continue
        try:
            done = finished([str(compiler), "-O2", str(SOURCE), "-o", str(program), *LIBRARIES])
        except ForeignError as error:
            failures.append(str(error))
            continue
        if done.returncode == 0:
            return Program(launcher, [str(program), *arguments])
        failures.append(f"{compiler.name}: {_first_error(done.stderr)}")
    if not failures:
        raise ForeignError("no mpicc on PATH, other than this environment's own")
    raise ForeignError("FFTW-MPI (fftw3-mpi.h, libfftw3_mpi) is not there: " + "; ".join(failures))


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = (line for line in lines if "error" in line or "cannot find" in line)
    return next(errors, lines[0] if lines else "no reason given").removeprefix(f"{SOURCE}:")
