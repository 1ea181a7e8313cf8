"""Cosines and sines, padding, batches, layouts, lines: against scipy.fft on the whole array."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
import scipy.fft
from cases import parameters
from errors import agreed
from fft_data import block, close, spectrum, whole
from scipy.signal import resample

from onesided.collectives import PatternError
from onesided.pencilfft import PFFT, newDistArray, passes

METHOD = "rma-notify"
OPTIONS = {"method": METHOD, "effort": "estimate"}


@contextmanager
def blocks(nbytes):
    """Plans whose passes have blocks of about this size."""
    usual = passes.CACHE_BYTES
    passes.CACHE_BYTES = nbytes
    try:
        yield
    finally:
        passes.CACHE_BYTES = usual


def transformed(values, kinds, norm, axes=None):
    """Axis by axis, from the last to the first, or in this order."""
    for axis in range(values.ndim - 1, -1, -1) if axes is None else axes:
        kind = kinds if isinstance(kinds, str) else kinds.get(axis)
        if kind is not None:
            function = getattr(scipy.fft, kind[:3])
            values = function(values, type=int(kind[3]), axis=axis, norm=norm)
        elif np.isrealobj(values):
            values = scipy.fft.rfft(values, axis=axis, norm=norm)
        else:
            values = scipy.fft.fft(values, axis=axis, norm=norm)
    return values


@parameters(nbytes=[1, 2000, 1 << 20], shape=[(8, 9, 10), (5, 7)], char="dF")
def case_fewer_fields_than_planned(comm, nbytes, shape, char, seed):
    """Blocks lie along the fields, within them, or have all of them."""
    values = whole((3, 2, *shape), char, seed)
    expected = spectrum(values, range(2, values.ndim))
    with blocks(nbytes), PFFT(comm, shape, dtype=char, batch=(3, 2), **OPTIONS) as plan:
        u, wanted = block(plan, values, False), expected[plan.local_slice()]
        for count in (2, 1, 3):
            for given in (False, True):
                out = newDistArray(plan)[:count] if given else None
                factor = count + 3.0 * given
                u_hat = plan.forward(factor * u[:count], out)
                assert u_hat is out or not given
                close(u_hat, factor * wanted[:count], char)
                out = newDistArray(plan, False)[:count] if given else None
                close(plan.backward(u_hat, out), factor * u[:count], char)
                plan.forward.Start(u[:count], None if out is None else u_hat)
                close(plan.forward.Wait(), wanted[:count], char)
        if comm.size > 1:
            count = 1 + (comm.rank == comm.size - 1)
            text = agreed(comm, PatternError, lambda: plan.forward(u[:count]))
            assert "numbers of fields" in text
        close(plan.forward(u), wanted, char)
        rounds = len(plan.transposes)
    with PFFT(comm, shape, dtype=char, **OPTIONS) as single:
        assert rounds == len(single.transposes)  # all fields travel in one exchange


#: Kind -> where its points lie, of n, and its functions there, by number.
SERIES = {
    "dct1": (lambda n: np.arange(n) / (n - 1), lambda k, x: np.cos(np.pi * k * x)),
    "dct2": (lambda n: (np.arange(n) + 0.5) / n, lambda k, x: np.cos(np.pi * k * x)),
    "dct3": (lambda n: np.arange(n) / n, lambda k, x: np.cos(np.pi * (k + 0.5) * x)),
    "dct4": (lambda n: (np.arange(n) + 0.5) / n, lambda k, x: np.cos(np.pi * (k + 0.5) * x)),
    "dst1": (lambda n: np.arange(1, n + 1) / (n + 1), lambda k, x: np.sin(np.pi * (k + 1) * x)),
    "dst2": (lambda n: (np.arange(n) + 0.5) / n, lambda k, x: np.sin(np.pi * (k + 1) * x)),
    "dst3": (lambda n: np.arange(1, n + 1) / n, lambda k, x: np.sin(np.pi * (k + 0.5) * x)),
    "dst4": (lambda n: (np.arange(n) + 0.5) / n, lambda k, x: np.sin(np.pi * (k + 0.5) * x)),
}


#: The points that orthogonal transforms of a kind count as roots of a half.
ENDS = {"dct1": [0, -1], "dct3": [0], "dst3": [-1]}


def interpolant(values, kind, axis, count, orthogonal):
    """The functions of a kind through these values, at ``count`` points."""
    if kind not in SERIES:
        return resample(values, count, axis=axis)
    points, function = SERIES[kind]
    n = values.shape[axis]
    here, there = (function(np.arange(n), points(m)[:, None]) for m in (n, count))
    if orthogonal:
        for matrix in (here, there):
            matrix[ENDS.get(kind, [])] *= np.sqrt(0.5)
    lines = np.moveaxis(values, axis, 0).reshape(n, -1)
    fine = (there @ np.linalg.solve(here, lines)).reshape(count, *np.delete(values.shape, axis))
    return np.moveaxis(fine, 0, axis)


@parameters(kind=["r2c d", "c2c D", *(f"{kind} d" for kind in SERIES), "dct1 D", "dst2 D"],
            norm=["forward", "ortho"], axis=[0, 1])
def case_padded_transforms_interpolate(comm, kind, norm, axis, seed):
    """Every length and number of points, along the first axis or the last; both ways."""
    kind, char = kind.split()
    for n in (2, 3, 4, 5, 6, 7):
        for more in {1, 2, n}:
            shape = (n, 3) if axis == 0 else (4, n)
            factor = (n + more + 0.01) / n
            options = {"kinds": {axis: kind}, "dtype": char, "norm": norm, "axes": (axis,)}
            options |= {"grid": (1, -1) if axis == 0 else (-1,), **OPTIONS}
            values = whole(shape, char, seed)
            fine = interpolant(values, kind, axis, n + more, norm == "ortho")
            with (
                PFFT(comm, shape, **options) as plain,
                PFFT(comm, shape, padding=factor, **options) as padded,
            ):
                assert padded.global_shape(False) == fine.shape
                spectrum = plain.forward(block(plain, values, False))
                physical = padded.backward(spectrum)
                if norm == "ortho":  # a function has the norm that its points give it
                    modes = [plan.xfftn[0][0].modes for plan in (plain, padded)]
                    fine = fine * np.sqrt(modes[0] / modes[1])
                close(physical, fine[padded.local_slice(False)])
                close(padded.forward(physical), spectrum)


def case_an_array_of_another_plan(comm):
    """Of the same local shape, or it would be found out by that."""
    n = 4 * comm.size
    with (
        PFFT(comm, (n, n, 8), **OPTIONS) as one,
        PFFT(comm, (2 * n, 2 * n, 8), grid=(-1,), **OPTIONS) as other,
    ):
        array = newDistArray(other, False)
        wrong = array.v.reshape(-1)[: int(np.prod(one.shape(False)))].reshape(one.shape(False))
        one.forward(wrong)  # a plain array is nobody's
        foreign = newDistArray(one, False)
        foreign._p0 = array.pencil
        with pytest.raises(PatternError, match="another plan"):
            one.forward(foreign)


@parameters(method=["rma-notify", "rma-fence", "p2p", "mpi", "auto"])
def case_grid_and_method_are_measured(comm, method, seed):
    values = whole((8, 9, 10), "d", seed)
    with PFFT(comm, values.shape, grid="auto", method=method, wisdom=False) as plan:
        u = block(plan, values, False)
        close(plan.forward(u), spectrum(values)[plan.local_slice()])


def plane_wave(kind, number, x):
    """The function that one coefficient of a kind stands for, of ``number`` waves or half waves."""
    if kind in ("r2c", "c2c"):
        return np.exp(1j * number * x)
    return np.cos(number * x) if kind.startswith("dct") else np.sin(number * x)


@parameters(kind=["c2c", *SERIES], axis=[0, 1, 2])
def case_meshes_and_wavenumbers(comm, kind, axis):
    """One function of the mesh has one coefficient, where its number says."""
    length = 3.0
    shape = [5, 6, 4]
    shape[axis] = 8
    char = "D" if kind == "c2c" else "d"
    options = {"axes": (axis,), "kinds": {axis: kind}, "grid": (1, -1) if axis == 0 else (-1,)}
    with PFFT(comm, shape, dtype=char, **options, **OPTIONS) as plan:
        mesh, scaled = plan.local_mesh((length,) * 3), plan.wavenumbers(length)
        numbers = plan.wavenumbers()
        for each in (mesh, scaled, numbers):
            assert [a.shape[i] for i, a in enumerate(each)] == [
                plan.shape(each is not mesh)[i] for i in range(3)
            ]
        for place in (1, 3, 6):
            every = np.unique(np.concatenate(comm.allgather(numbers[axis].ravel())))
            wanted = every[place]
            unit = (2 if kind == "c2c" else 1) * np.pi / length
            u = newDistArray(plan, False)
            u[...] = plane_wave(kind, wanted * unit, mesh[axis])
            u_hat = np.abs(plan.forward(u))
            there = np.broadcast_to(numbers[axis] == wanted, u_hat.shape)
            assert np.all(u_hat[~there] < 1e-12)
            assert np.all(u_hat[there] > 0.4)
        np.testing.assert_allclose(scaled[axis], numbers[axis] * unit)
        assert all(not np.any(scaled[other]) for other in range(3) if other != axis)


@parameters(shape=[(12, 9, 10), (16,)], batch=[(), (2,)])
def case_a_derivative(comm, shape, batch):
    """As the guide does it, on any domain; and the mask of the 2/3 rule."""
    n = shape if len(shape) > 1 else (max(16, 4 * comm.size**2),)
    with PFFT(comm, n, batch=batch, **OPTIONS) as plan:
        lengths = [2.0 + axis for axis in range(len(n))]
        x, k = plan.local_mesh([(1.0, length) for length in lengths]), plan.wavenumbers(lengths)
        phases = [2 * np.pi * (c - 1.0) / length for c, length in zip(x, lengths, strict=True)]
        u = newDistArray(plan, False)
        u[...] = np.sin(phases[0])
        u_hat = plan.forward(u)
        for axis in range(len(n)):
            expected = np.cos(phases[0]) * 2 * np.pi / lengths[0] if axis == 0 else 0
            found = plan.backward(1j * k[axis] * u_hat)
            np.testing.assert_allclose(found, np.broadcast_to(expected, u.shape), atol=1e-12)
        whole = np.ones(plan.global_shape(True)[len(batch):], bool)
        for axis, number in enumerate(whole.shape):
            last = axis == len(n) - 1
            waves = np.arange(number) if last else np.fft.fftfreq(number, 1 / number)
            small = np.abs(waves) < n[axis] / 3
            whole &= small.reshape([-1 if i == axis else 1 for i in range(len(n))])
        np.testing.assert_array_equal(plan.mask(), whole[plan.local_slice()[len(batch):]])


@parameters(shape=[(8, 9, 10), (400,)])
def case_a_plan_explains_itself(comm, shape):
    with PFFT(comm, shape, dtype=complex, backend="scipy", **OPTIONS) as plan:
        text = plan.explain()
        assert f"{plan.nbytes} bytes" in text
        for word in ("process grid", "forward:", "backward:", "c2c along axis", ": scipy"):
            assert word in text
        assert text.count("exchange by rma-notify") == len(plan.transposes)
        assert plan.nbytes >= sum(each.nbytes for each in plan.transposes) / 6
