"""Distributed lines against scipy.fft on the whole line."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
from cases import parameters, ranks, skip
from fft_data import block, whole
from io_data import same_error

from onesided.collectives import PatternError, UnsupportedError, methods
from onesided.pencilfft import PFFT, newDistArray
from onesided.pencilfft.line import factors

POWERS = {"backward": 0, "ortho": 1, "forward": 2}
METHOD = "p2p"  # of the cases that are not about methods: the quickest to plan


def planned(comm, n, char="D", method=METHOD, **options):
    """A plan, or the case is skipped where this MPI does not support the method."""
    words = {"effort": "estimate", "norm": "backward", **options}
    try:
        return PFFT(comm, (n,), dtype=char, method=method, **words)
    except UnsupportedError as error:
        skip(str(error))


def good(n, size):
    """The length, or the next one that so many ranks can transform."""
    if size == 1:
        return n
    try:
        factors(n, size)
    except UnsupportedError as error:
        return int(str(error).split()[-1])
    return n


def spectrum(values):
    """What scipy.fft makes of the whole line."""
    return scipy.fft.rfft(values) if values.dtype.kind == "f" else scipy.fft.fft(values)


def close(found, expected, whole_line):
    """Compare parts of a line, relative to the largest element of all."""
    eps = np.finfo(found.dtype).eps * 10 * max(1.0, np.log2(whole_line.shape[-1]))
    assert found.shape == expected.shape
    assert np.abs(found - expected).max(initial=0) <= eps * np.abs(whole_line).max()


def there_and_back(plan, values, expected):
    """Both directions on this rank's parts; inputs must stay what they were."""
    u = block(plan, values)
    kept = u.copy()
    u_hat = plan.forward(u, newDistArray(plan))
    close(u_hat, expected[plan.local_slice()], expected)
    np.testing.assert_array_equal(u, kept)
    kept_hat = u_hat.copy()
    close(plan.backward(u_hat, newDistArray(plan, False)), kept, values)
    np.testing.assert_array_equal(u_hat, kept_hat)
    return u_hat


@parameters(char="dDfFgG", norm=["backward", "ortho", "forward"])
def case_lines(comm, char, norm, seed):
    """Of every length that the ranks can transform, parts of equal and of different sizes."""
    sizes = range(1, 20) if comm.size == 1 else range(comm.size**2, comm.size**2 + 20)
    for n in sorted({good(n, comm.size) for n in (*sizes, 97, 1024, 41**2, 1400)}):
        values = whole((n,), char, seed)
        expected = spectrum(values) / np.sqrt(values.real.dtype.type(n)) ** POWERS[norm]
        with planned(comm, n, char, norm=norm) as plan:
            ends = comm.allgather((plan.local_slice(False)[0], plan.local_slice()[0]))
            for side, length in enumerate((n, expected.size)):
                starts = [0, *(end[side].stop for end in ends)]
                assert starts[:-1] == [end[side].start for end in ends]
                assert starts[-1] == length
            there_and_back(plan, values, expected)


@parameters(method=lambda: list(methods()), char="dD")
def case_methods(comm, method, char, seed):
    """Every way to exchange, other data each time; equal data give equal results."""
    n = good(120, comm.size)
    lines = [whole((n,), char, seed + k) for k in (0, 1, 0)]
    with planned(comm, n, char, method) as plan:
        assert len(plan.transposes) == (6 if comm.size > 1 else 0)
        found = [there_and_back(plan, values, spectrum(values)) for values in lines]
        np.testing.assert_array_equal(found[0], found[2])
        assert method == "auto" or {each.method for each in plan.transposes} <= {method}


@ranks(at_least=2)
def case_lengths_that_do_not_fit(comm):
    for n in (1, 97, comm.size**2 - 1):
        words = same_error(comm, lambda n=n: PFFT(comm, (n,), dtype=complex), UnsupportedError)
        found = int(words.split()[-1])
        assert found > n
        with planned(comm, found) as plan:
            assert plan.global_shape() == (found,)


@parameters(batch=[(2,), (2, 3)], char="dD")
def case_lines_together(comm, batch, char, seed):
    n = good(30, comm.size)
    values = whole((*batch, n), char, seed)
    with planned(comm, n, char, batch=batch) as plan:
        there_and_back(plan, values, spectrum(values))


@parameters(char="dD")
def case_arrays_with_strides(comm, char, seed):
    n = good(60, comm.size)
    values = whole((n,), char, seed)
    expected = spectrum(values)
    with planned(comm, n, char) as plan:
        u = np.full((3, *plan.shape(False))[::-1], np.nan, char)[:, 1][::-1]
        u_hat = np.full(2 * plan.shape()[0], np.nan, plan.dtype(True))[::2]
        u[...] = values[plan.local_slice(False)]
        close(plan.forward(u, u_hat), expected[plan.local_slice()], expected)
        close(plan.backward(u_hat, u), values[plan.local_slice(False)], values)


def case_in_place(comm, seed):
    """Also half a spectrum where its line was, on any number of ranks."""
    n = good(60, comm.size)
    for char in "dD":
        values = whole((n,), char, seed)
        with planned(comm, n, char) as plan:
            shapes = plan.shape(False), plan.shape()
            memory = np.zeros(16 * max(*shapes[0], *shapes[1]), np.uint8)
            u, u_hat = (
                memory[: shape[0] * dtype.itemsize].view(dtype)
                for shape, dtype in zip(shapes, (plan.dtype(), plan.dtype(True)), strict=True)
            )
            u[...] = values[plan.local_slice(False)]
            plan.forward(u, u_hat)
            close(u_hat, spectrum(values)[plan.local_slice()], spectrum(values))
            plan.backward(u_hat, u)
            close(u, values[plan.local_slice(False)], values)


@parameters(n=[30, 45])
def case_imaginary_parts_that_mean_nothing(comm, n, seed):
    """Of the constant mode, and of the highest one of an even number of points."""
    n = good(n, comm.size)
    values = whole((n,), "d", seed)
    half = spectrum(values)
    half[0] += 7j
    if n % 2 == 0:
        half[-1] -= 3j
    with planned(comm, n, "d") as plan:
        back = plan.backward(half[plan.local_slice()])
        close(back, values[plan.local_slice(False)], values)


@parameters(char="dD", worst=[np.nan, np.inf])
def case_nan_passes_and_is_gone(comm, char, worst, seed):
    n = good(30, comm.size)
    values = whole((n,), char, seed)
    with planned(comm, n, char) as plan:
        spoilt = values.copy()
        spoilt[n // 2] = worst
        u_hat = plan.forward(spoilt[plan.local_slice(False)])
        assert not np.any(np.isfinite(u_hat))
        with np.errstate(all="raise"):  # of one rank alone
            u_hat[...] = worst if comm.rank == 0 else 0
            assert not np.any(np.isfinite(plan.backward(u_hat)))
        there_and_back(plan, values, spectrum(values))


def case_lines_are_not_redistributed(comm):
    with planned(comm, good(30, comm.size)) as plan:
        u = newDistArray(plan, False)
        with pytest.raises(PatternError, match="line"):
            u.redistribute(0)
        assert not u.v.any()
