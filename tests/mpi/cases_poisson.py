"""``onesided poisson`` inside a job: walls, methods, wrong transforms, mistakes."""

from __future__ import annotations

import numpy as np
import pytest
from cases import parameters
from command_runs import run_command

from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.main import build_parser
from onesided.apps.solvers import poisson
from onesided.pencilfft import PFFT

pytestmark = pytest.mark.one_mpi

QUICK = ["--iterations", "2", "--comm", "rma-notify"]


def run(comm, *words):
    return run_command(comm, " ".join(["poisson", *QUICK, *words]))


WALLS = {
    "periodic": ("periodic", "33 32"),
    "dirichlet": ("dirichlet", "18 25 26"),
    "neumann": ("neumann", "24 25 20"),
    "walls first": ("dirichlet neumann periodic", "20 21 32"),
    "walls last": ("periodic neumann dirichlet", "32 21 20"),
}


@parameters(which=list(WALLS))
def case_walls(comm, which):
    boundary, shape = WALLS[which]
    words = ["--boundary", *boundary.split(), "--shape", *shape.split()]
    code, found = run(comm, *words, "--levels", "2")
    assert code == 0
    assert found["verified"] is True
    coarse, fine = (row for row in found["rows"] if row["labels"]["method"] == "rma-notify")
    assert fine["error"] < 1e-4
    assert fine["metrics"]["order"] > 5
    assert coarse["error"] > 1e2 * fine["error"]


@parameters(dtype=["float32", "float64"])
def case_walls_of_either_precision(comm, dtype):
    words = ["--boundary", "dirichlet", "--shape", "64", "32", "--levels", "1", "--dtype", dtype]
    code, found = run(comm, *words)
    assert code == 0
    precision = 20 * np.finfo(dtype).eps
    assert found["rows"][0]["error"] < max(precision, 1e-9)


def case_every_method(comm):
    words = ["--boundary", "neumann", "periodic", "--shape", "16", "18", "--levels", "1"]
    code, found = run(comm, *words, "--comm", "all")
    assert code == 0
    errors = [row["error"] for row in found["rows"] if "error" in row]
    assert len(errors) > 5
    np.testing.assert_allclose(errors, errors[0], rtol=1e-9)
    assert found["verified"] is True


class Wrong(PFFT):
    """A plan whose forward transform is a little off."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        forward = self.forward

        def wrong(source, target):
            forward(source, target)
            target *= 1.01

        wrong.input, wrong.output = forward.input, forward.output
        wrong.input_pencil, wrong.output_pencil = forward.input_pencil, forward.output_pencil
        self.forward = wrong


def case_wrong_transforms_are_noticed(comm):
    poisson.PFFT = Wrong
    try:
        code, found = run(comm, "--boundary", "dirichlet", "--shape", "16", "16", "--levels", "1")
    finally:
        poisson.PFFT = PFFT
    assert code == 1
    assert found["verified"] is False


MISTAKES = {
    "boundaries": (["--boundary", "periodic", "neumann"], "2 conditions for 3 axes"),
    "levels": (["--shape", "16", "16", "--levels", "4"], "leaves 2 points"),
    "method": (["--comm", "rma-magic"], "no method 'rma-magic'"),
    "grid": (["--grid", "5", "7", "11"], "5, 7, 11"),
}


@parameters(mistake=list(MISTAKES))
def case_mistake(comm, mistake):
    words, fragment = MISTAKES[mistake]
    options = build_parser().parse_args(["poisson", *QUICK, *words])
    with pytest.raises(CommandError, match=fragment):
        poisson.run(comm, options)
