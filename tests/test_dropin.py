"""Tests and programs of mpi4py, mpi4py-fft and shenfun, unmodified, on our classes.

Of shenfun's tests those are chosen that pass with mpi4py-fft alone on the same ranks; others are
for one rank only (test_assign, test_padding, test_project_2dirichlet, test_dot, test_helmholtz2D
and 3D fail on two by themselves).
"""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from itertools import product

import mpi_harness
import numpy as np
import pytest
import released
from mpi4py import MPI
from mpi_harness import TESTS

from onesided import pencilfft

ONE_SIDED = "rma-notify,rma-binomial,rma-p2p"
MODES = ["install", "replace"]
SHENFUN = {
    "test_tensorproductspace": ("test_transform", "test_refine", "test_inner"),
    "test_backward": ("test_backward2D", "test_backward2ND", "test_backward3D"),
    "test_curl": ("test_curl",),
    "test_matrices": ("test_biharmonic3D",),
    "test_lagrangian_particles": ("test_lagrangian_particles",),
    "test_fourier": ("test_energy_fourier",),
    "test_forms": ("test_inner",),
    # as it is it needs an h5py with MPI
    "test_io": ("test_regular_2D", "test_mixed_2D", "test_regular_3D", "test_mixed_3D"),
}
#: Program, mode and ranks of what also a short run tries; mpi4py's tests on NumPy's arrays alone.
DUE = [
    ("test_cco_pr_buf", ONE_SIDED, 2), ("test_cco_pr_vec", ONE_SIDED, 1),
    ("test_cco_pr_ngh_buf", ONE_SIDED, 2), ("test_darray", "install", 2),
    ("test_darray", "replace", 2), ("test_mpifft", "replace", 2),
]  # fmt: skip


def cells():
    """Package, its program, functions of that (all of it without), mode, ranks, settings."""
    for name, methods, ranks in product(("buf", "vec", "ngh_buf"), (ONE_SIDED, "p2p"), range(1, 6)):
        program = f"test_cco_pr_{name}"
        yield "mpi4py", program, (), methods, ranks, {}
        if (program, methods, ranks) in DUE:
            yield "mpi4py", program, (), methods, ranks, {"backends": "numpy"}
    for mode, ranks in product(MODES, (1, 2, 4)):
        # its get() needs an h5py with MPI: where there is no h5py at all the program leaves it out
        hidden = {"hide": "h5py"} if mode == "install" else {}
        yield "mpi4py-fft", "test_darray", (), mode, ranks, hidden
        yield "mpi4py-fft", "test_mpifft", ("test_r2r",), mode, ranks, {}
        yield "mpi4py-fft", "test_pencil", (), mode, ranks, {}
        # some thousand plans: in two parts, each with both kinds of mpi4py-fft's serial transforms
        # hidden or not, so that a part takes minutes and not hours on a busy machine
        yield "mpi4py-fft", "test_mpifft", (), mode, ranks, {"types": "d", "hide": "pyfftw"}
        yield "mpi4py-fft", "test_mpifft", (), mode, ranks, {"types": "f"}
    for method in ("rma-fence", "p2p", "mpi"):
        yield "mpi4py-fft", "test_pencil", (), "install", 2, {"method": method}
    for ranks in (1, 2, 4):  # ours only: mpi4py-fft's need an h5py, and a netCDF4, with MPI
        yield "mpi4py-fft", "test_io", (), "replace", ranks, {}
    for name, mode, ranks in product(SHENFUN, ("as it is", *MODES), (1, 2, 4)):
        yield "shenfun", name, SHENFUN[name], mode, ranks, {}


def parameters():
    for package, program, functions, mode, ranks, settings in cells():
        short = "backends" in settings or package != "mpi4py"
        due = (program, mode, ranks) in DUE and short and "types" not in settings
        words = [package, program, *functions, mode, str(ranks), *settings.values()]
        yield pytest.param(package, program, functions, mode, ranks, settings, id="-".join(words),
                           marks=() if due else pytest.mark.full)  # fmt: skip


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """The folder of a package's tests, of the version that is installed, and one with what else it
    needs."""

    @cache
    def find(package):
        folder = tmp_path_factory.mktemp(package)
        if package != "shenfun":
            version = released.installed_version(package, package.replace("-", "_"))
            return released.source(package, version, folder), None
        tests, built = released.source(package, released.SHENFUN, folder), folder / "built"
        try:
            import mpi4py_fft  # noqa: F401
        except ImportError:
            released.built(built, "mpi4py-fft")
        released.built(built, f"shenfun=={released.SHENFUN}")
        released.pip("install", "--target", str(built), *released.NEEDED, timeout=600.0)
        return tests, built

    return find


@pytest.mark.parametrize(
    ("package", "program", "functions", "mode", "ranks", "settings"), list(parameters())
)
def test_a_program(source, package, program, functions, mode, ranks, settings):
    tests, built = source(package)
    file = tests / f"{program}.py"
    assert file.is_file()
    if package == "mpi4py":
        words = ["foreign_collectives.py", str(tests), file.name]
        env = {"ONESIDED_METHODS": mode, "ONESIDED_BACKENDS": settings.get("backends", "")}
    else:
        words = ["dropin.py", mode, settings.get("method", "rma-notify"), str(file), *functions]
        env = {"ONESIDED_DROPIN_" + key.upper(): text for key, text in settings.items()}
        env |= {"ONESIDED_DROPIN_PATH": str(built)} if built else {}
    outcome = mpi_harness.run(TESTS / "programs" / words[0], ranks, *words[1:], env=env,
                              timeout=1500.0 if "types" in settings else 600.0)  # fmt: skip
    assert outcome.kind == "pass", outcome.report()
    for function in functions:
        assert re.search(rf"{function}: [1-9]\d* times", outcome.stdout)


UNCHANGED = """
import sys
import numpy as np
from mpi4py import MPI
from mpi4py_fft import PFFT, newDistArray
from mpi4py_fft.mpifft import PFFT as same

fft = PFFT(MPI.COMM_WORLD, (12, 10, 8), dtype=float)
u = newDistArray(fft, False)
u[:] = np.random.default_rng(MPI.COMM_WORLD.rank).random(u.shape)
back = fft.backward(fft.forward(u, newDistArray(fft)), newDistArray(fft, False))
assert np.allclose(back, u)
ours = [isinstance(each, kind) for each, kind in ((fft, same), (fft, PFFT))]
sys.stdout.write(f"{type(u).__module__.split('.')[0]} {ours} {sys.argv[1:]}\\n")  # at once
"""


@pytest.mark.parametrize(
    ("options", "arrays"),
    [([], "onesided"), (["--transposes-only", "--method", "p2p"], "mpi4py_fft")],
)
def test_a_program_as_it_is(tmp_path, options, arrays):
    pytest.importorskip("mpi4py_fft")
    program = tmp_path / "unchanged.py"
    program.write_text(UNCHANGED)
    words = [*options, str(program), "--method", "its own"]
    outcome = mpi_harness.run("-m onesided.pencilfft", 2, *words, timeout=90)
    assert outcome.kind == "pass", outcome.report()
    assert outcome.stdout.count(f"{arrays} [True, True] ['--method', 'its own']") == 2


def test_what_was_rebound_is_given_back():
    theirs = pytest.importorskip("mpi4py_fft")
    with pencilfft.replace(effort="estimate"):
        assert issubclass(theirs.PFFT, pencilfft.PFFT)
        assert theirs.newDistArray is pencilfft.newDistArray
        with pencilfft.install():
            assert not issubclass(theirs.PFFT, pencilfft.PFFT)
            assert issubclass(theirs.pencil.Transfer, pencilfft.Transfer)
    assert not issubclass(theirs.PFFT, pencilfft.PFFT)
    assert not issubclass(theirs.pencil.Transfer, pencilfft.Transfer)
    assert theirs.io.HDF5File is not pencilfft.HDF5File


GIVE_WAY = {
    "by place": ({"padding": 1.5}, (None, float, None, False), {}),
    "by name": ({"padding": 1.5}, (), {"padding": 1.0}),
    "planner_effort": ({"effort": "estimate"}, (), {"planner_effort": "FFTW_ESTIMATE"}),
    "slab": ({"grid": (-1,)}, (), {"slab": True}),
    "transforms": ({"kinds": "dct2"}, (), {"transforms": {(0,): (np.fft.fftn, np.fft.ifftn)}}),
    "subcomm": ({"grid": (-1,)}, (), {}),
}


@pytest.mark.parametrize("what", GIVE_WAY)
def test_settings_give_way(what):
    theirs = pytest.importorskip("mpi4py_fft")
    settings, arguments, named = GIVE_WAY[what]
    with pencilfft.replace("p2p", **settings):
        comm = theirs.pencil.Subcomm(MPI.COMM_SELF, [0, 1]) if what == "subcomm" else MPI.COMM_SELF
        with theirs.PFFT(comm, (8, 8), *arguments, **named) as plan:
            assert plan.global_shape() == (8, 8)
            made = plan.pencil[0].transfer(plan.pencil[0].pencil(0), float), plan.transfer[0]
            assert {transfer._method for transfer in made} == {"p2p"}
    assert pencilfft.pencil.Transfer is pencilfft.Transfer


def public_names():
    """The public names of the installed mpi4py-fft, members of its classes among them."""
    names = set()
    modules = ["mpi4py_fft", *(f"mpi4py_fft.{m}" for m in "mpifft pencil libfft io fftw".split())]
    for module in map(importlib.import_module, modules):
        for name, value in vars(module).items():
            home = getattr(value, "__module__", "mpi4py_fft") or "mpi4py_fft"
            number = isinstance(value, int)  # FFTW's own constants
            private = name.startswith("_") or inspect.ismodule(value) or number
            if private or not home.startswith("mpi4py_fft"):
                continue
            names.add(name)
            if inspect.isclass(value):
                names |= {f"{name}.{each}" for each in vars(value) if not each.startswith("_")}
    return names


def test_the_table_of_names():
    pytest.importorskip("mpi4py_fft", reason="mpi4py-fft is not installed")
    page = TESTS.parent / "docs" / "guides" / "mpi4py-fft.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip(" `") for cell in line.split("|")[1:3]] for line in lines if "| `" in line]
    table = {theirs: ours for theirs, ours in rows}
    assert len(table) == len(rows)
    assert public_names() <= table.keys()
    for ours in set(table.values()) - {"-"}:
        place = pencilfft
        for part in ours.split("."):
            place = getattr(place, part)
