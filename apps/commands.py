"""The commands by name. A new command is one file with ``run(comm, options)`` and one entry here.

Nothing heavy is imported before a command is chosen.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from onesided.apps import broadcast_options, generate_options, options, solve_options
from onesided.apps.evidence import options as evidence_options
from onesided.apps.heat import options as heat_options
from onesided.apps.hpccg import options as hpccg_options
from onesided.apps.minife import options as minife_options
from onesided.apps.minimd import options as minimd_options
from onesided.apps.modelling import options as model_options
from onesided.apps.partitioned.options import bench_partitioned
from onesided.apps.reporting import options as report_options
from onesided.apps.rmamt import options as rmamt_options
from onesided.apps.tuning import options as tuning_options


@dataclass(frozen=True)
class Command:
    """A command: its name (``"bench fft"`` is ``fft`` in the group ``bench``), file and options."""

    name: str
    module: str
    summary: str
    add_options: Callable[[argparse.ArgumentParser], None]


GROUPS = {"bench": "Measure against MPI_Alltoallv, mpi4py-fft, PETSc and SciPy."}

COMMANDS = (
    Command(
        "fft",
        "onesided.apps.fft",
        "Transform an array forward and backward.",
        options.fft,
    ),
    Command(
        "spmv",
        "onesided.apps.spmv",
        "Multiply a sparse matrix from a file with a vector.",
        options.spmv,
    ),
    Command(
        "solve",
        "onesided.apps.solve",
        "Solve a system of linear equations with a sparse matrix from a file.",
        solve_options.solve,
    ),
    Command(
        "pagerank",
        "onesided.apps.pagerank",
        "Rank the nodes of a directed graph whose matrix is in a file.",
        solve_options.pagerank,
    ),
    Command(
        "generate",
        "onesided.apps.generate",
        "Make the matrix of a grid or of a mesh, and write it to a file.",
        generate_options.generate,
    ),
    Command(
        "poisson",
        "onesided.apps.poisson",
        "Solve the Poisson equation on finer and finer grids, and tell the error.",
        options.poisson,
    ),
    Command(
        "navier-stokes",
        "onesided.apps.navier_stokes",
        "Follow the Taylor-Green vortex by the Navier-Stokes equations.",
        options.navier_stokes,
    ),
    Command(
        "heat",
        "onesided.apps.heat.command",
        "Follow the heat equation, its halos exchanged in several ways.",
        heat_options.heat,
    ),
    Command(
        "hpccg",
        "onesided.apps.hpccg.command",
        "Solve the system of the mini-application HPCCG, its ghosts brought in several ways.",
        hpccg_options.hpccg,
    ),
    Command(
        "minife",
        "onesided.apps.minife.command",
        "Solve for steady heat by finite elements as the mini-application MiniFE does.",
        minife_options.minife,
    ),
    Command(
        "minimd",
        "onesided.apps.minimd.command",
        "Move atoms that attract and repel each other, ghost atoms exchanged in several ways.",
        minimd_options.minimd,
    ),
    Command(
        "doctor",
        "onesided.apps.doctor",
        "Tell what this MPI is, and which methods work on it.",
        options.doctor,
    ),
    Command(
        "tune",
        "onesided.apps.tuning.command",
        "Measure what the method auto decides by, or show what is known.",
        tuning_options.tune,
    ),
    Command(
        "model",
        "onesided.apps.modelling.model",
        "Predict what a round of every method takes, on up to a million ranks.",
        model_options.model,
    ),
    Command(
        "bench alltoallv",
        "onesided.apps.evidence.alltoallv",
        "Compare persistent exchanges with MPI_Alltoallv and memcpy.",
        evidence_options.bench_alltoallv,
    ),
    Command(
        "bench rounds",
        "onesided.apps.evidence.rounds",
        "Rounds and set-ups of exchanges beside the targets that they have.",
        evidence_options.bench_rounds,
    ),
    Command(
        "bench collectives",
        "onesided.apps.evidence.collectives",
        "Compare every persistent collective with the MPI's own, as OSU's micro-benchmarks do.",
        evidence_options.bench_collectives,
    ),
    Command(
        "bench patterns",
        "onesided.apps.evidence.patterns",
        "Compare them on the exchange patterns of sparse matrices.",
        evidence_options.bench_patterns,
    ),
    Command(
        "bench apps",
        "onesided.apps.evidence.applications",
        "Compare a Fourier transform and conjugate gradients by every method, with others.",
        evidence_options.bench_apps,
    ),
    Command(
        "bench all",
        "onesided.apps.evidence.everything",
        "Repeat the papers' experiments, each in a job of its own, into a folder.",
        evidence_options.bench_all,
    ),
    Command(
        "bench broadcast",
        "onesided.apps.bench_broadcast",
        "Compare one-sided broadcasts with MPI_Bcast, and with the models LogP and LogGP.",
        broadcast_options.bench_broadcast,
    ),
    Command(
        "bench fft",
        "onesided.apps.bench_fft",
        "Compare the distributed FFT with mpi4py-fft.",
        options.bench_fft,
    ),
    Command(
        "bench halo",
        "onesided.apps.bench_halo",
        "Compare the ghosts of a grid with persistent messages written by hand.",
        options.bench_halo,
    ),
    Command(
        "bench partitioned",
        "onesided.apps.partitioned.bench",
        "Compare partitioned sends with messages, and with the MPI's own partitioned send.",
        bench_partitioned,
    ),
    Command(
        "bench rma-mt",
        "onesided.apps.rmamt.command",
        "Measure one-sided messages of several threads, as the suite RMA-MT does.",
        rmamt_options.bench_rma_mt,
    ),
    Command(
        "bench rma-mt-cells",
        "onesided.apps.rmamt.worker",
        "Measure some cells of rma-mt in this job, which is how rma-mt does it.",
        rmamt_options.bench_rma_mt_cells,
    ),
    Command(
        "bench model",
        "onesided.apps.modelling.bench_model",
        "Find the parameters of the model by measuring, and check its predictions.",
        model_options.bench_model,
    ),
    Command(
        "bench spmv",
        "onesided.apps.bench_spmv",
        "Compare the distributed product with SciPy's serial one, and PETSc's.",
        options.bench_spmv,
    ),
    Command(
        "report",
        "onesided.apps.reporting.command",
        "Make one HTML page of what other commands measured, and of what papers claim.",
        report_options.report,
    ),
)
