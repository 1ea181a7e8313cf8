"""``onesided navier-stokes`` inside a job: rates of change, time steps, checkpoints, mistakes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest
import scipy.fft
from cases import parameters, ranks
from flow_series import series_enstrophy

from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.main import build_parser
from onesided.apps.solvers import navier_stokes
from onesided.apps.solvers.flow import Flow
from onesided.apps.solvers.navier_stokes import State
from onesided.pencilfft import newDistArray
from onesided.pencilfft.io.hdf5 import HDF5File

pytestmark = pytest.mark.one_mpi

METHOD = "rma-notify"
QUICK = ["--comm", METHOD]


@contextmanager
def flowing(comm, shape, nu=0.01, **options):
    flow = Flow(comm, shape, nu, method=METHOD, **options)
    yield flow
    flow.destroy()


@contextmanager
def folder(comm):
    """A folder that all ranks know."""
    name = comm.bcast(tempfile.mkdtemp(prefix="onesided-flow-") if comm.rank == 0 else None)
    yield name
    comm.Barrier()
    if comm.rank == 0:
        shutil.rmtree(name)


def wavenumbers(shape):
    k = [np.fft.fftfreq(n, 1 / n) for n in shape[:2]] + [np.arange(shape[2] // 2 + 1.0)]
    return np.array(np.meshgrid(*k, indexing="ij"))


def solenoidal(shape, seed):
    """Random coefficients of a real field without divergence, mean, or modes without partner."""
    values = np.random.default_rng(seed).standard_normal((3, *shape))
    field = scipy.fft.rfftn(values, axes=(1, 2, 3), norm="forward")
    k = wavenumbers(shape)
    square = (k**2).sum(0)
    square[0, 0, 0] = 1
    field -= k * (k * field).sum(0) / square
    field[:, 0, 0, 0] = 0
    for axis, n in enumerate(shape):
        if n % 2 == 0:
            field[(slice(None),) * (axis + 1) + (n // 2,)] = 0
    return field


def fine(field, shape):
    """Values on a grid of twice as many points, on which products are not aliased."""
    double = [2 * n for n in shape]
    padded = np.zeros((3, double[0], double[1], double[2] // 2 + 1), complex)
    x, y = ((k % m).astype(int) for k, m in zip(wavenumbers(shape)[:2], double, strict=False))
    z = wavenumbers(shape)[2].astype(int)
    padded[:, x, y, z] = field
    return scipy.fft.irfftn(padded, s=double, axes=(1, 2, 3), norm="forward"), (x, y, z)


def serial_rate(field, shape, nu):
    """P(u x omega) - nu k^2 u on one rank, by SciPy, on a finer grid."""
    k = wavenumbers(shape)
    square = (k**2).sum(0)
    u, where = fine(field, shape)
    omega, _ = fine(1j * np.cross(k, field, axis=0), shape)
    product = np.cross(u, omega, axis=0)
    rate = scipy.fft.rfftn(product, axes=(1, 2, 3), norm="forward")[(slice(None), *where)]
    rate = rate - k * (k * rate).sum(0) / np.where(square == 0, 1, square)
    rate -= nu * square * field
    rate[:, 0, 0, 0] = 0
    for axis, n in enumerate(shape):
        if n % 2 == 0:
            rate[(slice(None),) * (axis + 1) + (n // 2,)] = 0
    return rate


SHAPES = [(8, 8, 8), (9, 6, 10), (4, 12, 7)]


@parameters(shape=SHAPES)
def case_rate_of_change_is_that_of_one_rank(comm, shape, seed):
    field = solenoidal(shape, seed)
    expected = serial_rate(field, shape, 0.03)
    assert np.abs(expected).max() > 1e-2
    with flowing(comm, shape, 0.03) as flow:
        where = flow.plan.local_slice(True)
        flow.velocity_hat[...] = field[where]
        found = flow.rate_of_change()
        np.testing.assert_allclose(found, expected[where], atol=1e-13 * np.abs(expected).max())
        np.testing.assert_array_equal(flow.velocity_hat, field[where])


@parameters(shape=SHAPES)
def case_integrals_are_those_of_one_rank(comm, shape, seed):
    field = solenoidal(shape, seed)
    with flowing(comm, shape) as flow:
        flow.velocity_hat[...] = field[flow.plan.local_slice(True)]
        u, _ = fine(field, shape)
        omega, _ = fine(1j * np.cross(wavenumbers(shape), field, axis=0), shape)
        np.testing.assert_allclose(flow.energy(), 0.5 * (u**2).sum(0).mean(), rtol=1e-12)
        np.testing.assert_allclose(flow.enstrophy(), 0.5 * (omega**2).sum(0).mean(), rtol=1e-12)
        assert flow.divergence() < 1e-14
        flow.velocity_hat[0] += field[flow.plan.local_slice(True)][1]
        assert flow.divergence() > 1e-2


def power(comm, flow, seed):
    """Rate of change of the energy, relative to what the parts of the sum are."""
    shape = SHAPES[1]
    field = solenoidal(shape, seed)[flow.plan.local_slice(True)]
    flow.velocity_hat[...] = field
    rate = flow.rate_of_change()
    weight = np.where(wavenumbers(shape)[2][flow.plan.local_slice(True)[1:]] > 0, 2, 1)
    parts = (weight * np.conj(field) * rate).real
    return comm.allreduce(parts.sum()) / comm.allreduce(np.abs(parts).sum())


@parameters(padding=[1.0, 1.5])
def case_the_nonlinear_term_takes_no_energy(comm, padding, seed):
    with flowing(comm, SHAPES[1], 0.0, padding=padding) as flow:
        assert abs(power(comm, flow, seed)) < 1e-14


def case_without_padding_products_are_aliased(comm, seed):
    expected = serial_rate(solenoidal(SHAPES[1], seed), SHAPES[1], 0.0)
    with flowing(comm, SHAPES[1], 0.0, padding=1.0) as flow:
        where = flow.plan.local_slice(True)
        flow.velocity_hat[...] = solenoidal(SHAPES[1], seed)[where]
        difference = np.abs(flow.rate_of_change() - expected[where]).max(initial=0)
    assert max(comm.allgather(difference)) > 1e-2 * np.abs(expected).max()


def case_taylor_green(comm):
    with flowing(comm, (16, 16, 16), 1 / 1600) as flow:
        flow.taylor_green()
        np.testing.assert_allclose(flow.energy(), 1 / 8, rtol=1e-14)
        np.testing.assert_allclose(flow.enstrophy(), 3 / 8, rtol=1e-14)
        for _ in range(4):
            flow.step(0.025)
        np.testing.assert_allclose(flow.energy(), 0.124953117517, rtol=1e-11)
        np.testing.assert_allclose(flow.enstrophy(), series_enstrophy(0.1, 1 / 1600), rtol=1e-8)


def case_steps_are_of_fourth_order(comm):
    ends = []
    for steps in (2, 4, 32):
        with flowing(comm, (8, 8, 8), 0.05) as flow:
            flow.taylor_green()
            for _ in range(steps):
                flow.step(0.8 / steps)
            ends.append(np.array(flow.velocity_hat))
    errors = [comm.allreduce(float(np.sum(np.abs(each - ends[-1]) ** 2))) for each in ends[:2]]
    order = 0.5 * np.log2(errors[0] / errors[1])
    assert 3.6 < order < 4.6


@ranks(at_most=2)
def case_a_step_allocates_nothing_of_the_size_of_a_field(comm):
    with flowing(comm, (64, 64, 64), padding=1.0) as flow:
        flow.taylor_green()
        for _ in range(2):
            flow.step(0.01)
        component = flow.velocity_hat[0].nbytes
        tracemalloc.start()
        flow.step(0.01)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert component > 1 << 17
    assert peak < component / 2, (peak, component)


def run(comm, *words):
    """The command; what it wrote as JSON."""
    with folder(comm) as name:
        path = os.path.join(name, "out.json")
        options = build_parser().parse_args(["navier-stokes", *QUICK, *words, "--json", path])
        code = navier_stokes.run(comm, options)
        found = None
        if comm.rank == 0:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
        return code, comm.bcast(found)


def state(comm, path):
    """The velocity in a checkpoint."""
    with flowing(comm, (8, 10, 9)) as flow:
        array = newDistArray(flow.plan, True)
        HDF5File(path, mode="r", comm=comm).read(array, "velocity_hat", 7)
        return np.array(array)


def case_a_restart_goes_on_bit_for_bit(comm):
    words = ["--shape", "8", "10", "9", "--reynolds", "40", "--dt", "0.05"]
    with folder(comm) as name:
        whole, half, rest = (os.path.join(name, word + ".h5") for word in ("whole", "half", "rest"))
        saved, save = [], State.save
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                State, "save", lambda self, *to: (saved.append(self.step), save(self, *to))
            )
            run(comm, *words, "--steps", "7", "--checkpoint", whole, "--save-every", "3")
        assert saved == [3, 6, 7]
        run(comm, *words, "--steps", "4", "--checkpoint", half)
        code, found = run(comm, "--restart", half, "--steps", "3", "--checkpoint", rest)
        assert code == 0
        assert found["pattern"]["nu"] == 1 / 40
        assert (found["pattern"]["step"], found["pattern"]["steps"]) == (4, 3)
        assert found["pattern"]["modes"] == [8, 10, 9]
        np.testing.assert_allclose(found["pattern"]["history"][-1][0], 0.35)
        once, twice = state(comm, whole), state(comm, rest)
        assert comm.allreduce(once.size) > 0
        assert once.tobytes() == twice.tobytes()
        run(comm, "--restart", half, "--steps", "3", "--checkpoint", rest, "--dt", "0.04")
        assert comm.allreduce(state(comm, rest).tobytes() != once.tobytes()) > 0


def case_methods_side_by_side(comm):
    code, found = run(comm, "--shape", "16", "--time", "0.1", "--comm", f"p2p,{METHOD}")
    assert code == 0
    assert [row["labels"]["method"] for row in found["rows"]] == ["p2p", METHOD]
    first, second = found["rows"]
    assert "verified" not in first  # there was nothing to hold it against
    assert second["verified"] is True
    assert all(row["iterations"] == 10 for row in found["rows"])
    assert len(found["verdicts"]) == 2
    assert all(verdict["verified"] for verdict in found["verdicts"].values())
    times = [round(time, 2) for time, *_ in found["pattern"]["history"]]
    assert times == [k / 100 for k in range(11)]


def case_no_energy_is_lost_without_viscosity(comm):
    code, found = run(comm, "--shape", "8", "--nu", "0", "--steps", "20", "--dt", "0.05")
    assert code == 0
    (_, first, *_), (_, last, *_) = found["pattern"]["history"][0], found["pattern"]["history"][-1]
    np.testing.assert_allclose(last, first, rtol=1e-6)
    assert "energy lost without viscosity" in found["verdicts"]


def case_a_wrong_flow_is_noticed(comm):
    class Wrong(Flow):
        def step(self, dt):
            super().step(1.01 * dt)

    navier_stokes.Flow = Wrong
    try:
        code, found = run(comm, "--shape", "16", "--time", "0.1")
    finally:
        navier_stokes.Flow = Flow
    assert code == 1
    assert found["verified"] is False


MISTAKES = {
    "shape": (["--shape", "8", "8"], "--shape 8 8: one number for a cube, or three"),
    "modes": (["--shape", "3"], "4 or more"),
    "save": (["--save-every", "2"], "--save-every needs --checkpoint"),
    "methods": (["--comm", "p2p,mpi", "--checkpoint", "x.h5"], "needs one method"),
    "time": (["--time", "0.001"], "no whole number of time steps of 0.01"),
    "odd time": (["--time", "0.105"], "no whole number of time steps of 0.01"),
    "restart": (["--restart", "none.h5"], "none.h5"),
    "blown up": (["--shape", "8", "--dt", "50", "--steps", "20"], "--dt 50 is too long"),
    "method": (["--comm", "rma-magic"], "no method 'rma-magic'"),
    "kernel": (["--backend", "abacus"], "abacus"),
}


@parameters(mistake=list(MISTAKES))
def case_mistake(comm, mistake):
    words, fragment = MISTAKES[mistake]
    options = build_parser().parse_args(["navier-stokes", *QUICK, *words])
    with pytest.raises(CommandError, match=fragment):
        navier_stokes.run(comm, options)


def case_files_that_are_no_checkpoint(comm):
    with folder(comm) as name, flowing(comm, (8, 8, 8)) as flow:
        path = os.path.join(name, "other.h5")
        words = ["navier-stokes", *QUICK, "--restart", path, "--steps", "1"]
        HDF5File(path, comm=comm).write(0, {"velocity_hat": [flow.velocity_hat]})
        with pytest.raises(CommandError, match="no checkpoint"):
            navier_stokes.run(comm, build_parser().parse_args(words))
        HDF5File(path, mode="w", comm=comm).write(0, {"other": [flow.velocity_hat]})
        with pytest.raises(CommandError, match=r"other\.h5"):
            navier_stokes.run(comm, build_parser().parse_args(words))
        run(comm, "--shape", "8", "--steps", "1", "--checkpoint", path)
        with pytest.raises(CommandError, match=r"modes \(8, 8, 8\), --shape \(16, 16, 16\)"):
            navier_stokes.run(comm, build_parser().parse_args([*words, "--shape", "16"]))
        if comm.rank == 0:
            with open(path, "r+b") as file:
                file.truncate(1000)
        comm.Barrier()
        with pytest.raises(CommandError, match=r"other\.h5"):
            navier_stokes.run(comm, build_parser().parse_args(words))
