"""The README's lines and the job scripts of the documentation, by a Slurm brought up here."""

from __future__ import annotations

from pathlib import Path

import mpi_harness
import pytest
import slurm

pytestmark = pytest.mark.full
SCRIPTS = Path(__file__).resolve().parents[1] / "docs" / "slurm"


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory):
    reason = slurm.available()
    if reason:
        pytest.skip(f"no Slurm: {reason}")
    with slurm.Slurm(nodes=2) as running:
        folder = str(tmp_path_factory.mktemp("slurm"))
        running.env |= mpi_harness.environment({"SLURM_CONF": running.env["SLURM_CONF"]}, folder)
        yield running


def test_a_job_script(two_nodes, mpi_name):
    said = two_nodes.batch(SCRIPTS / f"{mpi_name}.sh", timeout=300)
    assert "2 nodes, 2 ranks each" in said, said
    assert "rounding" in said, said


def test_a_line_of_srun_or_mpiexec_in_an_allocation(two_nodes, mpi_name):
    launch = {"mpich": ["srun", "--mpi=pmi2", "-N", "2", "-n", "4"],
              "openmpi": ["salloc", "-N", "2", "--ntasks-per-node", "2", "mpiexec"]}[mpi_name]
    done = two_nodes.call(*launch, "onesided", "heat", "--shape", "32", "32", "--steps", "5",
                          "--verify", timeout=200)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr + two_nodes.logs()


def test_a_rank_that_fails_ends_the_job(two_nodes, mpi_name):
    if mpi_name != "mpich":
        pytest.skip("mpiexec, not Slurm, starts the ranks of the embedded Open MPI")
    done = two_nodes.call("srun", "--mpi=pmi2", "-N", "2", "-n", "4", "python", "-m", "mpi4py",
                          str(mpi_harness.TESTS / "programs" / "faults.py"), "exception",
                          timeout=60)  # fmt: skip
    assert done.returncode != 0
    assert "ArithmeticError: only here" in done.stderr, done.stderr
