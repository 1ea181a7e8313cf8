"""Distributed lines against scipy.fft on the whole line."""

from __future__ import annotations

import os
import time
import tracemalloc
from contextlib import contextmanager

import numpy as np
import scipy.fft
from cases import parameters, ranks, skip_if_known

from onesided.collectives import (
    MethodError,
    MismatchError,
    PatternError,
    RequestError,
    UnsupportedError,
    methods,
)
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.line.lengths import LineFactors, divisors, smooth_factors
from onesided.pencilfft.line.line import LineTransforms

METHOD = "p2p"  # of the cases that are not about methods: the quickest to plan
SCIPY = ("scipy", "estimate")
ALL = os.environ.get("ONESIDED_FFT_CASES") == "all"
ORDERS = [(char, transposed) for char in "dDfF" for transposed in (False, True)]


@contextmanager
def planned(comm, n, char, transposed=False, method=METHOD, factors=None, kernels=SCIPY):
    """Transforms of a line, or the case is skipped where this MPI does not support the method."""
    selection = Selection(*kernels, False)
    try:
        line = LineTransforms(comm, n, char, selection, method, None, transposed, factors=factors)
    except UnsupportedError as error:
        skip_if_known(error, method)
    yield line
    line.free()


def whole(n, char, seed):
    """A global line of random numbers, the same on all ranks."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(n)
    if char in "FD":
        values = values + 1j * rng.standard_normal(n)
    return values.astype(char)


def spectrum(values):
    """What scipy.fft makes of the whole line, in double precision."""
    if values.dtype.kind == "f":
        return scipy.fft.rfft(values.astype(float))
    return scipy.fft.fft(values.astype(complex))


def close(found, expected, whole_line):
    """Compare parts of a line, relative to the largest element of all."""
    eps = np.finfo(found.dtype).eps * 10 * max(1.0, np.log2(len(whole_line)))
    assert found.shape == expected.shape
    assert np.abs(found - expected).max(initial=0) <= eps * np.abs(whole_line).max()


def there_and_back(line, values, scales=(0, 2)):
    """Both directions on this rank's parts; inputs must stay what they were."""
    expected = spectrum(values) / np.sqrt(len(values)) ** scales[0]
    u = values[line.input_geometry.local_slice()].copy()
    kept = u.copy()
    u_hat = np.full(line.output_geometry.subshape, np.nan, line.spectral_dtype)
    line.run(True, u, u_hat, scales[0])
    close(u_hat, expected[line.frequencies()], expected)
    np.testing.assert_array_equal(u, kept)
    kept_hat, back = u_hat.copy(), np.full_like(u, np.nan)
    line.run(False, u_hat, back, scales[1])
    close(back, kept, values)
    np.testing.assert_array_equal(u_hat, kept_hat)
    return u_hat, back


def some(position):
    """Every combination of dtype and order if the run asks for it, or one that takes turns."""
    return ORDERS if ALL else [ORDERS[position % len(ORDERS)]]


@parameters(first=[1, 11, 21, 31])
def case_short_lines(comm, first, seed):
    for n in range(first, first + 10):
        for char, transposed in some(n):
            with planned(comm, n, char, transposed) as line:
                there_and_back(line, whole(n, char, seed))


@parameters(n=[97, 1009, 7919, 4096, 3 * 2**10, 41**2, 2 * 3989, 7 * 1009])
def case_long_lines(comm, n, seed):
    for char, transposed in some(n) if ALL else [("dD"[n % 2], True), ("fFdD"[n % 4], False)]:
        with planned(comm, n, char, transposed) as line:
            there_and_back(line, whole(n, char, seed))


@parameters(n=[1, 2, 6, 12, 45] if ALL else [2, 12], char=["d", "D"])
def case_every_matrix(comm, n, char, seed):
    """Whatever the factors: slender matrices, empty ranks, rows cut anywhere."""
    values = whole(n, char, seed)
    for n1 in divisors(n):
        for transposed in (False, True):
            with planned(
                comm, n, char, transposed, factors=LineFactors(n1, n // n1, False)
            ) as line:
                there_and_back(line, values)


@ranks(at_least=2)
@parameters(n=[1, 2, 12, 31], char=["d", "D"])
def case_padded_matrices(comm, n, char, seed):
    """Bluestein's algorithm at lengths where another one would be chosen."""
    values = whole(n, char, seed)
    least = n + (n // 2 + 1 if char == "d" else n) - 1
    pairs = list(smooth_factors(least, comm.size))
    for m1, m2 in pairs if ALL else {pairs[0], pairs[-1]}:
        with planned(comm, n, char, factors=LineFactors(m1, m2, True)) as line:
            there_and_back(line, values)
            np.testing.assert_array_equal(
                line.frequencies(), np.arange(n)[line.output_geometry.local_slice()]
            )


@parameters(method=lambda: list(methods()), n=[60, 97] if ALL else [97])
def case_methods(comm, method, n, seed):
    """Every way to exchange, other data each time; equal data give equal results."""
    with planned(comm, n, "dD"[n % 2], method=method) as line:
        for forward in (True, False):
            assert len(line.exchanges(forward)) >= 3 or comm.size == 1
        found = [there_and_back(line, whole(n, line.dtype.char, seed + k)) for k in (0, 1, 0)]
        for first, last in zip(found[0], found[2], strict=True):
            np.testing.assert_array_equal(first, last)
        used = {request.method for request in line.requests}
        assert method == "auto" or used <= {method}
        assert all(request.rounds >= 3 for request in line.requests)


@parameters(effort=["estimate", "measure"], n=[1009, 3000])
def case_kernels_that_are_chosen(comm, effort, n, seed):
    with planned(comm, n, "dD"[n % 2], kernels=("auto", effort)) as line:
        there_and_back(line, whole(n, line.dtype.char, seed))


@ranks(at_least=2)
@parameters(n=[60, 97])
def case_late_ranks(comm, n, seed):
    """One rank after the other is late: nobody may write into memory that is still in use."""
    with planned(comm, n, "D") as line:
        mine = line.input_geometry.local_slice()
        lines = [whole(n, "D", seed + k) for k in range(3)]
        for late in range(comm.size):
            found = []
            for values in lines:
                if comm.rank == late:
                    time.sleep(0.005)
                found.append(np.empty(line.output_geometry.subshape, complex))
                line.run(True, values[mine], found[-1])
            for values, u_hat in zip(lines, found, strict=True):
                expected = spectrum(values)
                close(u_hat, expected[line.frequencies()], expected)


@parameters(char="dD", n=[97, 120], transposed=[False, True])
def case_unitary_transforms_keep_the_norm(comm, char, n, transposed, seed):
    """Parseval; and a shifted line has the spectrum times a phase."""
    values = whole(n, char, seed)
    with planned(comm, n, char, transposed) as line:
        u_hat, _ = there_and_back(line, values, (1, 1))
        frequencies = line.frequencies()
        counted = np.ones(len(frequencies))
        if char == "d":  # most coefficients stand for their mirror images as well
            counted[(frequencies > 0) & (2 * frequencies != n)] = 2
        energy = comm.allreduce((counted * np.abs(u_hat) ** 2).sum())
        assert np.isclose(energy, (np.abs(values) ** 2).sum(), rtol=1e-12)
        shifted = np.roll(values, 5)[line.input_geometry.local_slice()]
        found = np.empty_like(u_hat)
        line.run(True, shifted, found, 1)
        phase = np.exp(-2j * np.pi * (5 * frequencies % n) / n)
        close(found, u_hat * phase, spectrum(values) / np.sqrt(n))


@parameters(n=[97, 100], char="dD", transposed=[False, True])
def case_arrays_with_strides(comm, n, char, transposed, seed):
    values = whole(n, char, seed)
    expected = spectrum(values)
    with planned(comm, n, char, transposed) as line:
        u = np.repeat(values[line.input_geometry.local_slice()], 3)[::3]
        u_hat = np.full(2 * line.output_geometry.subshape[0], np.nan, complex)[::-2]
        line.run(True, u, u_hat)
        close(u_hat, expected[line.frequencies()], expected)
        back = np.full((len(u), 2), np.nan, char)[:, 1]
        line.run(False, u_hat, back, 2)
        close(back, u, values)


@parameters(n=[97, 100])
def case_in_place(comm, n, seed):
    values = whole(n, "D", seed)
    expected = spectrum(values)
    with planned(comm, n, "D") as line:
        u = values[line.input_geometry.local_slice()].copy()
        line.run(True, u, u)
        close(u, expected[line.input_geometry.local_slice()], expected)
        line.run(False, u, u, 2)
        close(u, values[line.input_geometry.local_slice()], values)


@parameters(n=[60, 97], char="dD", worst=[np.nan, np.inf])
def case_nan_passes_and_is_gone(comm, n, char, worst, seed):
    """The next line is as if there had been no other one."""
    values = whole(n, char, seed)
    spoilt = values.copy()
    spoilt[n // 2] = worst
    with planned(comm, n, char) as line:
        mine = line.input_geometry.local_slice()
        u_hat = np.zeros(line.output_geometry.subshape, line.spectral_dtype)
        line.run(True, spoilt[mine].copy(), u_hat)
        assert not np.isfinite(u_hat).any()
        there_and_back(line, values)
        back = np.zeros_like(values[mine])
        line.run(False, u_hat, back)
        assert not np.isfinite(back).any()
        there_and_back(line, values)


@parameters(n=[6, 9, 97, 194])
def case_imaginary_parts_that_mean_nothing(comm, n, seed):
    """As scipy.fft.irfft: those of coefficient 0, and of n / 2, are not read."""
    half = spectrum(whole(n, "d", seed))
    half[0] += 3j
    if n % 2 == 0:
        half[-1] -= 2j
    expected = scipy.fft.irfft(half, n)
    for transposed in (False, True):
        with planned(comm, n, "d", transposed) as line:
            back = np.empty(line.input_geometry.subshape)
            line.run(False, half[line.frequencies()], back, 2)
            close(back, expected[line.input_geometry.local_slice()], expected)


@ranks(at_least=2, at_most=2)
@parameters(n=[2**18, 2**18 + 3])
def case_nothing_of_the_size_of_a_line_is_allocated(comm, n, seed):
    char = "dD"[n % 2]
    buffers = 4 * np.getbufsize() * 16  # NumPy's own, of the operands of a call
    with planned(comm, n, char) as line:
        assert line.factors.padded == bool(n % 2)
        u = whole(n, char, seed)[line.input_geometry.local_slice()].copy()
        u_hat = np.empty(line.output_geometry.subshape, line.spectral_dtype)
        for round_ in range(2):
            if round_:
                tracemalloc.start()
            line.run(True, u, u_hat)
            line.run(False, u_hat, u, 2)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < buffers < 0.75 * u.nbytes, (peak, buffers, u.nbytes)


def refused(error, words, call, *arguments, **keywords):
    """Every rank must get this error."""
    try:
        call(*arguments, **keywords)
    except error as caught:
        assert words in str(caught), caught
    else:
        raise AssertionError(f"{error.__name__} was not raised")


def case_bad_arguments_are_errors_on_all_ranks(comm):
    selection = Selection("scipy", "estimate", False)

    def make(n=12, dtype="D", method=METHOD, transposed=False, **keywords):
        LineTransforms(comm, n, dtype, selection, method, None, transposed, **keywords)

    refused(PatternError, "a line of 0 elements", make, 0)
    refused(PatternError, "int64", make, dtype=int)
    refused(PatternError, "do not fit", make, factors=LineFactors(3, 5, False))
    refused(PatternError, "do not fit", make, factors=LineFactors(5, 4, True))
    if comm.size > 1:
        refused(MethodError, "carrier-pigeon", make, method="carrier-pigeon")
        last = comm.rank == comm.size - 1
        refused(MismatchError, "LineTransforms", make, n=12 + last)
        refused(MismatchError, "LineTransforms", make, transposed=last)
        refused(PatternError, f"rank {comm.size - 1}", make, n=-1 if last else 12)


def case_bad_calls(comm, seed):
    with planned(comm, 20, "d") as line:
        u = np.zeros(line.input_geometry.subshape)
        u_hat = np.zeros(line.output_geometry.subshape, complex)
        refused(PatternError, "the line has shape", line.run, True, u[None], u_hat)
        refused(PatternError, "float32", line.run, True, u.astype("f"), u_hat)
        refused(PatternError, "the spectrum has shape", line.run, False, u, u)
        u_hat.flags.writeable = False
        refused(PatternError, "read-only", line.run, True, u, u_hat)
        if comm.size == 1:
            both = np.zeros(22)
            refused(PatternError, "overlap", line.run, True, both[:20], both.view(complex))
        there_and_back(line, whole(20, "d", seed))
    line.free()
    refused(RequestError, "was freed", line.run, True, u, u_hat)
    assert line.requests == ()
