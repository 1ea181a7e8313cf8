"""The local products: each against SciPy's public one, and how they are chosen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from onesided.collectives.scripts import Part, script
from onesided.sparse.kernels import registry
from onesided.sparse.kernels import rows as module
from onesided.sparse.kernels.rows import ROWS_AT_ONCE, Csr, compiled
from onesided.sparse.solvers.iteration import step_of as step

LONG = 5000  # more rows than are sorted at once
SHAPES = [(50, 40), (0, 5), (5, 0), (ROWS_AT_ONCE + 7, 30)]
SPLIT = ["csr", "sell"]


@pytest.fixture(params=list(registry.KERNELS))
def kernel(request):
    if request.param not in registry.available():
        pytest.skip(f"kernel {request.param} is not installed")
    return request.param


@pytest.fixture(params=["csr", "sell", "sell, AVX2", "sell, plain", "sell, loads"])
def made_split(request, monkeypatch):
    """What makes the compiled kernels, with every vector unit that the processor has, and without
    its gathers."""
    if not compiled():
        pytest.skip("nothing is compiled")
    name, _, units = request.param.partition(", ")
    monkeypatch.setattr(module, "UNITS", {"plain": 0, "AVX2": 1}.get(units, 2))
    monkeypatch.setattr(module, "LOADS", int(units == "loads"))
    return registry.KERNELS[name].make


def matrix(shape, dtype, index, n_own=None):
    made = sparse.random_array(shape, density=0.1, rng=np.random.default_rng(3)).tocsr()
    assert made.nnz or not min(shape)
    return csr(made, dtype, index, shape[1] if n_own is None else n_own)


def csr(made, dtype, index, n_own):
    """Local rows, and the same matrix by SciPy, which may sort its own entries."""
    values = made.data.astype(dtype)
    if values.dtype.kind == "c":
        values *= np.exp(1j * np.arange(len(values))).astype(dtype)
    arrays = made.indptr.astype(index), made.indices.astype(index), values.copy()
    whole = sparse.csr_array((values, made.indices, made.indptr), made.shape)
    return Csr(made.shape[1], n_own, *arrays), whole


def close(y, whole, x):
    rounding = 50 * np.finfo(y.dtype).eps * (abs(whole) @ abs(x))
    return np.all(np.abs(y - whole @ x) <= rounding)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("k", [None, 1, 3])
@pytest.mark.parametrize("index", ["i4", "i8"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_products_overwrite_their_result(kernel, dtype, index, k, shape):
    rows, whole = matrix(shape, dtype, index)
    vectors = () if k is None else (k,)
    multiply = registry.KERNELS[kernel].make(rows)
    for turn in range(2):
        x = np.random.default_rng(turn).random((shape[1], *vectors)).astype(dtype)
        y = np.full((shape[0], *vectors), np.nan, dtype)
        multiply(x, y)
        assert close(y, whole, x)


def irregular(n_own, n_ghosts):
    """Rows of every length: none, some, a long one, one of ghosts only; columns near and far."""
    rng = np.random.default_rng(4)
    lengths = rng.integers(0, 12, LONG)
    lengths[1000:1100] = 7
    lengths[[5, 77, LONG - 1]] = 200, 0, 131
    first = rng.integers(0, n_own, LONG)
    columns = [np.sort((start + rng.choice(300, many, replace=False)) % n_own)
               for start, many in zip(first, lengths, strict=True)]
    for row in range(0, LONG, 3 if n_ghosts else LONG + 1):
        beyond = n_own + rng.choice(n_ghosts, min(n_ghosts, row % 5), replace=False)
        columns[row] = rng.permutation(np.concatenate([columns[row], beyond]))
    if n_ghosts:
        columns[7] = n_own + np.arange(n_ghosts)
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in columns])])
    indices = np.concatenate(columns)
    shape = LONG, n_own + n_ghosts
    return sparse.csr_array((rng.standard_normal(len(indices)), indices, indptr), shape=shape)


@pytest.mark.parametrize(("n_own", "n_ghosts"), [(400, 150), (400, 0), (90_000, 40)])
@pytest.mark.parametrize(
    ("dtype", "index"), [("f4", "i4"), ("f8", "i8"), ("c8", "i8"), ("c16", "i4")]
)
def test_interior_and_boundary_rows(made_split, dtype, index, n_own, n_ghosts):
    """x and ghosts at any address; a row is written once; products of some rows leave others."""
    rows, whole = csr(irregular(n_own, n_ghosts), dtype, index, n_own)
    inside = np.diff(sparse.csr_array(whole[:, n_own:]).indptr) == 0
    assert inside.any()
    assert inside.all() == (n_ghosts == 0)
    multiply = made_split(rows)
    for k in (None, 1, 2, 11):
        vectors = () if k is None else (k,)
        x = np.random.default_rng(5).standard_normal((whole.shape[1], *vectors)).astype(dtype)
        own, ghosts, y = (unaligned(part) for part in (x[:n_own], x[n_own:], whole @ x * np.nan))
        multiply.interior(own, y)
        assert np.array_equal(np.isnan(y).reshape(LONG, -1).any(axis=1), ~inside)
        multiply.boundary(own, ghosts, y)
        assert close(y, whole, x)
        other = np.empty_like(y)
        multiply(x, other)
        assert np.array_equal(y, other)


def unaligned(array):
    """A copy at an address that is a multiple of nothing."""
    memory = np.zeros(array.nbytes + 1, np.uint8)
    view = memory[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def test_values_that_are_no_numbers_stay_in_their_rows(kernel):
    one, rows = matrix((50, 40), "f8", "i4")[1], irregular(400, 0)
    for whole in (one, rows):
        x = np.random.default_rng(1).random(whole.shape[1])
        x[3], x[7] = np.nan, np.inf
        y = np.zeros(whole.shape[0])
        registry.KERNELS[kernel].make(csr(whole, "f8", "i4", len(x))[0])(x, y)
        expected = whole @ x
        assert np.array_equal(np.isnan(y), np.isnan(expected))
        assert np.array_equal(np.isinf(y), np.isinf(expected))
        assert np.isnan(y).any()
        assert not np.isnan(y).all()


@pytest.mark.parametrize("name", SPLIT)
def test_what_does_not_fit_is_refused(name):
    if not compiled():
        pytest.skip("nothing is compiled")
    rows, _ = matrix((50, 40), "f8", "i4", n_own=30)
    make = registry.KERNELS[name].make
    multiply = make(rows)
    x, ghosts, y = np.ones(30), np.ones(10), np.ones(50)
    single = x.astype("f4")
    for operands in [(x[1:], ghosts, y), (x, y, y), (x, ghosts, y[1:]), (single, ghosts, y)]:
        with pytest.raises(ValueError, match="vectors that do not fit"):
            multiply.boundary(*operands)
    y.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        multiply.interior(x, y)
    arrays = rows.indptr, rows.indices, rows.data
    for bad in (Csr(39, 30, *arrays), Csr(40, 30, rows.indptr[::-1].copy(), *arrays[1:]),
                Csr(40, 30, rows.indptr, rows.indices - 1, rows.data)):
        with pytest.raises(ValueError, match="out of range"):
            make(bad)
    with pytest.raises(ValueError, match="do not fit each other"):
        make(Csr(40, 30, rows.indptr, rows.indices[1:], rows.data))


def test_names_of_kernels():
    assert registry.available() == ["scipy", *(SPLIT if compiled() else [])]
    registry.check("auto")
    registry.check("scipy")
    assert [registry.usual(np.dtype(kind)) for kind in ("f4", "c16")] == ["sell", "csr"]
    with pytest.raises(ValueError, match="no kernel 'x'; there are auto, scipy, csr, sell"):
        registry.check("x")


def test_without_a_compiler_there_is_scipy(monkeypatch):
    monkeypatch.setattr(module, "COMPILED", False)
    assert registry.available() == ["scipy"]
    with pytest.raises(ValueError, match="'sell' needs a C compiler"):
        registry.check("sell")


@pytest.mark.parametrize("pq", [2.0, 0.0, -1.0, np.nan, np.inf], ids=str)
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_what_an_iteration_does_with_vectors(dtype, length, pq):
    """The C functions of an iteration of cg, as steps of a script, against NumPy."""
    if not compiled():
        pytest.skip("nothing is compiled")
    rng = np.random.default_rng(length)

    def drawn():
        values = rng.standard_normal(length) + 1j * rng.standard_normal(length)
        return (values if np.dtype(dtype).kind == "c" else values.real).astype(dtype)

    x, r, p, q, d = (drawn() for _ in range(5))
    z, numbers, out = np.zeros_like(r), np.array([0, 0, 0, 3.0, 0]), np.full(4, np.nan)
    found = np.array([pq, 5.0, 7.0])
    good = 0 < pq < np.inf
    lower = r - np.dtype(dtype).type(3 / pq) * q if good else r.copy()
    inverse = d * lower
    expected = [np.vdot(p, q).real, np.vdot(lower, lower).real if good else 0,
                np.vdot(lower, inverse).real, 7.0 if good else 3.0]
    moved = (x + 3 / pq * p, inverse + 7 / 3 * p) if good else (x.copy(), p.copy())
    run = script(
        [
            step("dot", r, p, q, out[0:1]),
            step("lower", r, numbers, found[0:1], r, q, out[1:2]),
            step("diagonal", r, d, r, z, out[2:3]),
            step("advance", r, numbers, found[1:2], found[2:3], Part(0), p, z),
        ],
        (x,),
    )
    run((x,))
    bound = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-12
    near = {"rtol": bound, "atol": 10 * bound}
    np.testing.assert_allclose([*out[:3], numbers[3]], expected, **near)
    for vector, wanted in ((r, lower), (z, inverse), (x, moved[0]), (p, moved[1])):
        np.testing.assert_allclose(vector, wanted, **near)
    assert bool(numbers[4]) == good
    assert numbers[0] == pq or np.isnan(pq)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sums_are_the_same_bits_with_and_without_gathers(dtype, monkeypatch):
    """So ranks on unlike processors may differ in what they find faster."""
    if not compiled():
        pytest.skip("nothing is compiled")
    rows, whole = csr(irregular(400, 0), dtype, "i4", 400)
    x, found = np.random.default_rng(8).standard_normal(400).astype(dtype), []
    for loads in (0, 1, -1):
        monkeypatch.setattr(module, "LOADS", loads)
        found.append(np.full(len(rows), np.nan, dtype))
        registry.KERNELS["sell"].make(rows)(x, found[-1])
    assert close(found[0], whole, x)
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
