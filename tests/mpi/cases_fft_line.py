"""Distributed lines against scipy.fft on the whole line."""

from __future__ import annotations

import numpy as np
import pytest
from cases import parameters, ranks
from errors import agreed
from fft_data import close, planned, spectrum, there_and_back, whole

from onesided.collectives import PatternError, UnsupportedError, methods
from onesided.pencilfft import PFFT, newDistArray
from onesided.pencilfft.line import factors

OPTIONS = {"method": "p2p", "effort": "estimate"}  # the quickest to plan


def good(n, size):
    """The length, or the next one that so many ranks can transform."""
    if size == 1:
        return n
    try:
        factors(n, size)
    except UnsupportedError as error:
        return int(str(error).split()[-1])
    return n


@parameters(char="dDfFgG", norm=["backward", "ortho", "forward"])
def case_lines(comm, char, norm, seed):
    """Of every length that the ranks can transform, parts of equal and of different sizes."""
    sizes = range(1, 20) if comm.size == 1 else range(comm.size**2, comm.size**2 + 20)
    for n in sorted({good(n, comm.size) for n in (*sizes, 97, 1024, 41**2, 1400)}):
        values = whole((n,), char, seed)
        expected = spectrum(values, norm=norm)
        with PFFT(comm, (n,), dtype=char, norm=norm, **OPTIONS) as plan:
            ends = comm.allgather((plan.local_slice(False)[0], plan.local_slice()[0]))
            for side, length in enumerate((n, expected.size)):
                starts = [0, *(end[side].stop for end in ends)]
                assert starts[:-1] == [end[side].start for end in ends]
                assert starts[-1] == length
            there_and_back(plan, values, expected, char)


@parameters(method=lambda: list(methods()), char="dD")
def case_methods(comm, method, char, seed):
    """Every way to exchange, other data each time; equal data give equal results."""
    n = good(120, comm.size)
    lines = [whole((n,), char, seed + k) for k in (0, 1, 0)]
    with planned(comm, (n,), method, dtype=char, effort="estimate") as plan:
        assert len(plan.transposes) == (6 if comm.size > 1 else 0)
        found = [there_and_back(plan, values, spectrum(values), char) for values in lines]
        np.testing.assert_array_equal(found[0], found[2])
        assert method == "auto" or {each.method for each in plan.transposes} <= {method}


@ranks(at_least=2)
def case_lengths_that_do_not_fit(comm):
    for n in (1, 97, comm.size**2 - 1):
        words = agreed(comm, UnsupportedError, lambda n=n: PFFT(comm, (n,), dtype=complex))
        found = int(words.split()[-1])
        assert found > n
        with PFFT(comm, (found,), dtype=complex, **OPTIONS) as plan:
            assert plan.global_shape() == (found,)


@parameters(n=[30, 45])
def case_imaginary_parts_that_mean_nothing(comm, n, seed):
    """Of the constant mode, and of the highest one of an even number of points."""
    n = good(n, comm.size)
    values = whole((n,), "d", seed)
    half = spectrum(values)
    half[0] += 7j
    if n % 2 == 0:
        half[-1] -= 3j
    with PFFT(comm, (n,), **OPTIONS) as plan:
        close(plan.backward(half[plan.local_slice()]), values[plan.local_slice(False)])


@parameters(char="dD", worst=[np.nan, np.inf])
def case_nan_passes_and_is_gone(comm, char, worst, seed):
    n = good(30, comm.size)
    values = whole((n,), char, seed)
    with PFFT(comm, (n,), dtype=char, **OPTIONS) as plan:
        spoilt = values.copy()
        spoilt[n // 2] = worst
        u_hat = plan.forward(spoilt[plan.local_slice(False)])
        assert not np.any(np.isfinite(u_hat))
        with np.errstate(all="raise"):  # of one rank alone
            u_hat[...] = worst if comm.rank == 0 else 0
            assert not np.any(np.isfinite(plan.backward(u_hat)))
        there_and_back(plan, values, spectrum(values), char)


def case_lines_are_not_redistributed(comm):
    with PFFT(comm, (good(30, comm.size),), **OPTIONS) as plan:
        u = newDistArray(plan, False)
        with pytest.raises(PatternError, match="line"):
            u.redistribute(0)
        assert not u.v.any()
