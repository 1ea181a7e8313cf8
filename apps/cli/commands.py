"""The commands by name. A new command is one function of (comm, options) and one entry here.

What a command can be given stands in a function of ``options.py`` of its room, named like the
command, which imports nothing heavy; no file of a room is imported before one of its commands is
chosen.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class Command(NamedTuple):
    """A command: its name (``"bench fft"`` is ``fft`` in the group ``bench``), room and file, and
    behind a colon its function there if that is not ``run``.

    ``starts_jobs``: it runs in one process, and starts jobs with its ``--ranks``. ``by_cases``:
    with ``--ranks`` another job goes on where one has ended in a case.
    """

    name: str
    file: str
    summary: str
    starts_jobs: bool = False
    by_cases: bool = False

    @property
    def run(self) -> Callable[[Any, Any], int]:
        """What does it, Collective; imports its file."""
        file, _, name = self.file.partition(":")
        found: Callable[[Any, Any], int] = getattr(
            import_module(f"onesided.apps.{file}"), name or "run"
        )
        return found

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Local. The function is named like the command."""
        room = self.file.partition(".")[0]
        options = import_module(f"onesided.apps.{room}.options")
        getattr(options, self.name.translate(str.maketrans(" -", "__")))(parser)


GROUPS = {"bench": "Measure against MPI_Alltoallv, mpi4py-fft, PETSc and SciPy."}

COMMANDS = (
    Command("fft", "tools.fft", "Transform an array forward and backward."),
    Command("spmv", "tools.spmv", "Multiply a sparse matrix from a file with a vector."),
    Command("solve", "solvers.solve",
        "Solve a system of linear equations with a sparse matrix from a file."),
    Command("pagerank", "solvers.solve:run_pagerank",
        "Rank the nodes of a directed graph whose matrix is in a file."),
    Command("generate", "tools.generate",
        "Make the matrix of a grid or of a mesh, and write it to a file."),
    Command("poisson", "solvers.poisson",
        "Solve the Poisson equation on finer and finer grids, and tell the error."),
    Command("navier-stokes", "solvers.navier_stokes",
        "Follow the Taylor-Green vortex by the Navier-Stokes equations."),
    Command("heat", "solvers.heat",
        "Follow the heat equation, its halos exchanged in several ways."),
    Command("hpccg", "miniapps.solving:run_hpccg",
        "Solve the system of the mini-application HPCCG, its ghosts brought in several ways."),
    Command("minife", "miniapps.solving:run_minife",
        "Solve for steady heat by finite elements as the mini-application MiniFE does."),
    Command("minimd", "miniapps.minimd",
        "Move atoms that attract and repel each other, ghost atoms exchanged in several ways."),
    Command("doctor", "tools.doctor", "Tell what this MPI is, and which methods work on it."),
    Command("tune", "tools.tune",
        "Measure what the method auto decides by, or show what is known."),
    Command("bench alltoallv", "papers.alltoallv",
        "Compare persistent exchanges with MPI_Alltoallv and memcpy."),
    Command("bench rounds", "papers.alltoallv:run_rounds",
        "Rounds and set-ups of exchanges beside the targets that they have."),
    Command("bench collectives", "papers.collectives",
        "Compare every persistent collective with the MPI's own, as OSU's micro-benchmarks do."),
    Command("bench patterns", "papers.alltoallv:run_patterns",
        "Compare them on the exchange patterns of sparse matrices."),
    Command("bench apps", "papers.applications",
        "Compare a Fourier transform and conjugate gradients by every method, with others."),
    Command("bench all", "papers.everything",
        "Repeat the papers' experiments, each in a job of its own, into a folder.",
        starts_jobs=True),
    Command("bench broadcast", "papers.broadcast",
        "Compare one-sided broadcasts with MPI_Bcast, and with the models LogP and LogGP."),
    Command("bench fft", "tools.fft:run_bench", "Compare the distributed FFT with mpi4py-fft."),
    Command("bench halo", "tools.bench_halo",
        "Compare the ghosts of a grid with persistent messages written by hand."),
    Command("bench partitioned", "papers.partitioned",
        "Compare partitioned sends with messages, and with the MPI's own partitioned send."),
    Command("bench programs", "tools.programs",
        "Run programs that were written for mpi4py-fft as they are, and with one line more."),
    Command("bench rma-mt", "papers.rmamt",
        "Measure one-sided messages of several threads, as the suite RMA-MT does.", by_cases=True),
    Command("bench spmv", "tools.spmv:run_bench",
        "Compare the distributed product with SciPy's serial one, and PETSc's."),
    Command("bench compare", "report.compare",
        "Tell how much faster or slower one run of a benchmark is than another."),
    Command("bench check", "report.compare:run_check",
        "Hold results against what the project wants to reach."),
    Command("report", "report.command",
        "Make one HTML page of what other commands measured, and of what papers claim."),
)  # fmt: skip
