"""Every kernel, and every way of using it, against scipy.fft. No MPI."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
import scipy.fft

from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.pencilfft.kernels import pocketfft, registry
from onesided.pencilfft.kernels.mkl import find_libraries
from onesided.pencilfft.kernels.protocol import REAL_KINDS, Layout, Task

NORM = ("backward", "ortho", "forward")
INVERSE = ("forward", "ortho", "backward")
TOLERANCE = {"f": 2e-4, "d": 1e-11}
GUARD = 7.0
NAMES = [*registry.BACKENDS, "scipy-public"]
SHAPES = [(6, 5, 7), (3, 4, 2, 5), (1, 2, 1), (5, 3), (8,)]


@cache
def kernel_named(name):
    return pocketfft.ScipyKernel() if name == "scipy-public" else registry.load_kernel(name)


@pytest.fixture(params=NAMES)
def kernel(request):
    if request.param not in [*registry.installed(), "scipy-public"]:
        pytest.skip(f"{registry.BACKENDS[request.param].distribution} is not installed")
    return kernel_named(request.param)


@cache
def data(shape, char, seed=0):
    """Random numbers; complex for F and D."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    if char in "FD":
        values = values + 1j * rng.standard_normal(shape)
    values = values.astype(char)
    values.flags.writeable = False
    return values


# Each layout makes memory for an array, full of GUARD, and the array in it.


def c_order(shape, char):
    memory = np.full(shape, GUARD, char)
    return memory, memory


def permuted(shape, char):
    order = (*range(1, len(shape)), 0)
    memory = np.full([shape[axis] for axis in order], GUARD, char)
    return memory, memory.transpose(np.argsort(order))


def with_gaps(shape, char):
    memory = np.full([2 * n + 1 for n in shape], GUARD, char)
    return memory, memory[tuple(slice(1, None, 2) for _ in shape)]


def backwards(shape, char):
    memory = np.full(shape, GUARD, char)
    return memory, memory[tuple(slice(None, None, -1) for _ in shape)]


def unaligned(shape, char):
    """An address that is a multiple of one real number, and of nothing more."""
    size = np.dtype(char.lower()).itemsize
    raw = np.zeros(int(np.prod(shape)) * np.dtype(char).itemsize + 128, np.uint8)
    start = -raw.ctypes.data % 64 + size
    memory = raw[start:][: raw.size - 128].view(char).reshape(shape)
    memory[...] = GUARD
    return memory, memory


LAYOUTS = {
    "c": (c_order, c_order),
    "permuted": (permuted, permuted),
    "gaps": (with_gaps, with_gaps),
    "to permuted": (c_order, permuted),
    "from permuted": (permuted, c_order),
    "from gaps": (with_gaps, c_order),
    "backwards": (backwards, c_order),
    "unaligned": (unaligned, unaligned),
}


def expected(task, values):
    """What scipy.fft says; real and imaginary part apart for cosine and sine transforms."""
    if task.others != 1:
        alone = expected(replace(task, others=1), values)
        return alone * task.others ** (-0.5 * task.scale)
    norm = (NORM if task.forward else INVERSE)[task.scale]
    if task.kind == "c2c":
        function = scipy.fft.fft if task.forward else scipy.fft.ifft
        return function(values, axis=task.axis, norm=norm)
    if task.kind == "r2c":
        return scipy.fft.rfft(values, axis=task.axis, norm=NORM[task.scale])
    if task.kind == "c2r":
        return scipy.fft.irfft(values, task.length, axis=task.axis, norm=INVERSE[task.scale])
    function = getattr(scipy.fft, ("" if task.forward else "i") + task.kind[:3])

    def real(part):
        return function(
            part, int(task.kind[3]), axis=task.axis, norm=norm, orthogonalize=task.orthogonal
        )

    return real(values.real) + 1j * real(values.imag) if values.dtype.kind == "c" else real(values)


def sides(kind, shape, axis, char):
    """Shapes and dtype characters of source and target; ``char`` is one of source and target."""
    half = tuple(n // 2 + 1 if i == axis else n for i, n in enumerate(shape))
    if kind == "r2c":
        return (shape, char.lower()), (half, char.upper())
    if kind == "c2r":
        return (half, char.upper()), (shape, char.lower())
    char = char.upper() if kind == "c2c" else char
    return (shape, char), (shape, char)


def check(plan, shape, char, kind, axis, layouts="c", in_place=False, effort="estimate", **more):
    """Plan and run one task on guarded memory; False where there is no plan."""
    source_side, target_side = sides(kind, shape, axis, char)
    values = data(*source_side)
    around, source = LAYOUTS[layouts][0](*source_side)
    around, target = (around, source) if in_place else LAYOUTS[layouts][1](*target_side)
    source[...] = values
    if not in_place:
        target[...] = np.nan
    wanted = {"forward": kind == "r2c", "scale": 1, "orthogonal": False, **more}
    task = Task(
        kind,
        axis,
        source=Layout.of(source),
        target=Layout.of(target),
        in_place=in_place,
        **wanted,
    )
    run = plan(task, effort)
    if run is None:
        return False
    source.flags.writeable = in_place
    run(source, target)
    np.testing.assert_allclose(
        target, expected(task, values), rtol=0, atol=TOLERANCE[char.lower()], err_msg=f"{task}"
    )
    assert in_place or np.array_equal(source, values), task
    target[...] = GUARD
    assert np.all(around == GUARD), f"written outside of the target: {task}"
    return True


@pytest.mark.parametrize("layouts", LAYOUTS)
@pytest.mark.parametrize("kind", ["c2c", "r2c", "c2r"])
@pytest.mark.parametrize("char", "fd")
def test_complex_transforms(kernel, kind, char, layouts):
    variants = {
        "c2c": list(product((True, False), (True, False))),
        "r2c": [(True, False)],
        "c2r": [(False, False)],
    }
    cases = done = 0
    for shape, scale in product(SHAPES, range(3)):
        for axis, (forward, in_place) in product(range(len(shape)), variants[kind]):
            more = {"forward": forward, "scale": scale, "others": 6 if axis else 1}
            cases += 1
            done += check(kernel.plan, shape, char, kind, axis, layouts, in_place, **more)
    # mpi4py-fft plans for arrays without gaps in one order only
    assert done == cases or kernel.name == "mpi4py-fft"
    assert done or layouts not in ("c", "permuted", "unaligned")


#: Kernels without orthogonal matrices for every scale, or with none of these transforms.
PARTIAL = ("ducc0", "pyfftw", "mpi4py-fft", "mkl")


@pytest.mark.parametrize("kind", REAL_KINDS)
@pytest.mark.parametrize("char", "fdFD")
def test_cosine_and_sine_transforms(kernel, kind, char):
    cases = done = 0
    for layouts, axis, scale, orthogonal in product(LAYOUTS, range(3), range(3), (False, True)):
        for forward, in_place in ((True, False), (False, False), (True, True)):
            more = {"forward": forward, "scale": scale, "orthogonal": orthogonal}
            cases += 1
            done += check(kernel.plan, (6, 5, 7), char, kind, axis, layouts, in_place, **more)
    assert done == cases or kernel.name in PARTIAL
    assert (done == 0) == (kernel.name == "mkl")


@pytest.mark.parametrize("length", [1, 2, 3, 4, 13, 97, 128, 360])
def test_lengths_and_the_way_back(kernel, length):
    """Forward, then the inverse with the whole factor, is where one began."""
    shape, done = (3, length, 2), 0
    for kind in ("c2c", "r2c", *REAL_KINDS):
        if kind == "dct1" and length < 2:
            continue
        (first, chars), (second, other) = sides(kind, shape, 1, "d")
        values, between, back = data(first, chars), np.empty(second, other), np.empty(first, chars)
        layouts = Layout.of(values), Layout.of(between)
        way = Task(kind, 1, True, 0, False, *layouts, False)
        inverse = "c2r" if kind == "r2c" else kind
        plans = [
            kernel.plan(way, "estimate"),
            kernel.plan(Task(inverse, 1, False, 2, False, *layouts[::-1], False), "estimate"),
        ]
        if None not in plans:
            plans[0](values, between)
            np.testing.assert_allclose(between, expected(way, values), atol=1e-10)
            plans[1](between, back)
            np.testing.assert_allclose(back, values, atol=1e-12)
            done += 1
    assert done >= 2


def test_a_line_of_nan_leaves_the_others_alone(kernel):
    values, result = data((6, 8, 20), "D").copy(), np.empty((6, 8, 20), complex)
    values[2, :, 3] = np.nan
    task = Task("c2c", 1, True, 0, False, Layout.of(values), Layout.of(result), False)
    kernel.plan(task, "estimate")(values, result)
    assert np.isnan(result[2, :, 3]).all()
    assert np.isnan(result).sum() == 8


@pytest.mark.parametrize("effort", ["estimate", "brief", "measure"])
def test_efforts_give_the_same_transform(kernel, effort):
    for kind, axis in (("c2c", 0), ("c2c", 2), ("r2c", 2), ("c2r", 1)):
        assert check(kernel.plan, (8, 12, 16), "d", kind, axis, effort=effort)


def test_a_call_works_at_any_address(kernel):
    """Planned once, run on aligned and unaligned arrays in turn."""
    values = data((4, 6, 10), "D")
    arrays = [make((4, 6, 10), "D")[1] for make in (c_order, unaligned, c_order, unaligned)]
    layout = Layout.of(values)
    task = Task("c2c", 1, True, 1, False, layout, layout, True)
    run = kernel.plan(task, "estimate")
    for array in arrays:
        array[...] = values
        run(array, array)
        np.testing.assert_allclose(array, expected(task, values), atol=1e-12)


def test_a_call_allocates_nothing_of_the_size_of_the_arrays(kernel):
    if isinstance(kernel, pocketfft.ScipyKernel):
        pytest.skip("the public functions of SciPy allocate their results")
    for kind in ("c2c", "r2c", "c2r", "dct2"):
        (first, chars), (second, other) = sides(kind, (40, 30, 50), 1, "d")
        source, target = data(first, chars), np.empty(second, other)
        task = Task(kind, 1, True, 1, False, Layout.of(source), Layout.of(target), False)
        run = kernel.plan(task, "estimate")
        if run is None:
            continue
        run(source, target)
        tracemalloc.start()
        run(source, target)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < source.nbytes / 8, task




def test_scipy_kernel_uses_the_extension_that_writes_in_place():
    """Not a promise, but what every SciPy until now allows: if it goes, look at it again."""
    assert isinstance(registry.load_kernel("scipy"), pocketfft.PocketfftKernel)


def test_unknown_backends_are_refused():
    with pytest.raises(PatternError, match=r"'fftpack'.*scipy"):
        registry.resolve_backend("fftpack")
    assert registry.resolve_backend("auto") == "auto"
    assert registry.resolve_backend("numpy") == "scipy"
    assert "scipy" in registry.installed()


def test_a_backend_that_is_not_installed_says_so(monkeypatch):
    gone = registry.Backend("package-that-does-not-exist", "gone_kernel", lambda: False)
    monkeypatch.setitem(registry.BACKENDS, "ducc0", gone)
    with pytest.raises(UnsupportedError, match="package-that-does-not-exist"):
        registry.resolve_backend("ducc0")
    assert "ducc0" not in registry.installed()
    with pytest.raises(UnsupportedError, match="cannot be loaded"):
        registry.load_kernel("ducc0")


def test_mkl_keeps_its_names_of_fftw_to_itself():
    """FFTW's users that are loaded later must not get MKL's functions of the same names."""
    if not find_libraries():
        pytest.skip("mkl is not installed")
    code = (
        "import ctypes\n"
        "from onesided.pencilfft.kernels import mkl\n"
        "made = mkl.Descriptor(False, mkl.COMPLEX, 8).commit()\n"
        "print(made, hasattr(ctypes.CDLL(None), 'fftw_plan_guru_dft'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "False"], done.stderr
