"""The commands by name. A new command is one file with ``run(comm, options)`` and one entry here.

What a command can be given stands in a function of ``options.py`` of its room, which imports
nothing heavy; no file of a room is imported before one of its commands is chosen.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import NamedTuple


class Command(NamedTuple):
    """A command: its name (``"bench fft"`` is ``fft`` in the group ``bench``), file and options.

    ``options``: the room and the function in its ``options.py``. Without a summary it is not for
    people. ``starts_jobs``: it runs in one process, and starts jobs with its ``--ranks``.
    """

    name: str
    module: str
    options: str
    summary: str
    starts_jobs: bool = False

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Local."""
        room, _, function = self.options.partition(":")
        getattr(import_module(f"onesided.apps.{room}.options"), function)(parser)


GROUPS = {"bench": "Measure against MPI_Alltoallv, mpi4py-fft, PETSc and SciPy."}

COMMANDS = (
    Command(
        "fft",
        "onesided.apps.tools.fft",
        "tools:fft",
        "Transform an array forward and backward.",
    ),
    Command(
        "spmv",
        "onesided.apps.tools.spmv",
        "tools:spmv",
        "Multiply a sparse matrix from a file with a vector.",
    ),
    Command(
        "solve",
        "onesided.apps.solvers.solve",
        "solvers:solve",
        "Solve a system of linear equations with a sparse matrix from a file.",
    ),
    Command(
        "pagerank",
        "onesided.apps.solvers.pagerank",
        "solvers:pagerank",
        "Rank the nodes of a directed graph whose matrix is in a file.",
    ),
    Command(
        "generate",
        "onesided.apps.tools.generate",
        "tools:generate",
        "Make the matrix of a grid or of a mesh, and write it to a file.",
    ),
    Command(
        "poisson",
        "onesided.apps.solvers.poisson",
        "solvers:poisson",
        "Solve the Poisson equation on finer and finer grids, and tell the error.",
    ),
    Command(
        "navier-stokes",
        "onesided.apps.solvers.navier_stokes",
        "solvers:navier_stokes",
        "Follow the Taylor-Green vortex by the Navier-Stokes equations.",
    ),
    Command(
        "heat",
        "onesided.apps.solvers.heat",
        "solvers:heat",
        "Follow the heat equation, its halos exchanged in several ways.",
    ),
    Command(
        "hpccg",
        "onesided.apps.miniapps.hpccg",
        "miniapps:hpccg",
        "Solve the system of the mini-application HPCCG, its ghosts brought in several ways.",
    ),
    Command(
        "minife",
        "onesided.apps.miniapps.minife",
        "miniapps:minife",
        "Solve for steady heat by finite elements as the mini-application MiniFE does.",
    ),
    Command(
        "minimd",
        "onesided.apps.miniapps.minimd",
        "miniapps:minimd",
        "Move atoms that attract and repel each other, ghost atoms exchanged in several ways.",
    ),
    Command(
        "doctor",
        "onesided.apps.tools.doctor",
        "tools:doctor",
        "Tell what this MPI is, and which methods work on it.",
    ),
    Command(
        "tune",
        "onesided.apps.tools.tune",
        "tools:tune",
        "Measure what the method auto decides by, or show what is known.",
    ),
    Command(
        "model",
        "onesided.apps.modelling.model",
        "modelling:model",
        "Predict what a round of every method takes, on up to a million ranks.",
    ),
    Command(
        "bench alltoallv",
        "onesided.apps.papers.alltoallv",
        "papers:bench_alltoallv",
        "Compare persistent exchanges with MPI_Alltoallv and memcpy.",
    ),
    Command(
        "bench rounds",
        "onesided.apps.papers.rounds",
        "papers:bench_rounds",
        "Rounds and set-ups of exchanges beside the targets that they have.",
    ),
    Command(
        "bench collectives",
        "onesided.apps.papers.collectives",
        "papers:bench_collectives",
        "Compare every persistent collective with the MPI's own, as OSU's micro-benchmarks do.",
    ),
    Command(
        "bench patterns",
        "onesided.apps.papers.patterns",
        "papers:bench_patterns",
        "Compare them on the exchange patterns of sparse matrices.",
    ),
    Command(
        "bench apps",
        "onesided.apps.papers.applications",
        "papers:bench_apps",
        "Compare a Fourier transform and conjugate gradients by every method, with others.",
    ),
    Command(
        "bench all",
        "onesided.apps.papers.everything",
        "papers:bench_all",
        "Repeat the papers' experiments, each in a job of its own, into a folder.",
        starts_jobs=True,
    ),
    Command(
        "bench broadcast",
        "onesided.apps.papers.broadcast",
        "papers:bench_broadcast",
        "Compare one-sided broadcasts with MPI_Bcast, and with the models LogP and LogGP.",
    ),
    Command(
        "bench fft",
        "onesided.apps.tools.bench_fft",
        "tools:bench_fft",
        "Compare the distributed FFT with mpi4py-fft.",
    ),
    Command(
        "bench halo",
        "onesided.apps.tools.bench_halo",
        "tools:bench_halo",
        "Compare the ghosts of a grid with persistent messages written by hand.",
    ),
    Command(
        "bench partitioned",
        "onesided.apps.papers.partitioned",
        "papers:bench_partitioned",
        "Compare partitioned sends with messages, and with the MPI's own partitioned send.",
    ),
    Command(
        "bench rma-mt",
        "onesided.apps.papers.rmamt",
        "papers:bench_rma_mt",
        "Measure one-sided messages of several threads, as the suite RMA-MT does.",
        starts_jobs=True,
    ),
    Command(
        "bench rma-mt-cells",
        "onesided.apps.papers.rmamt_worker",
        "papers:bench_rma_mt_cells",
        "",
    ),
    Command(
        "bench model",
        "onesided.apps.modelling.bench_model",
        "modelling:bench_model",
        "Find the parameters of the model by measuring, and check its predictions.",
    ),
    Command(
        "bench spmv",
        "onesided.apps.tools.bench_spmv",
        "tools:bench_spmv",
        "Compare the distributed product with SciPy's serial one, and PETSc's.",
    ),
    Command(
        "report",
        "onesided.apps.report.command",
        "cli:report",
        "Make one HTML page of what other commands measured, and of what papers claim.",
    ),
)
