"""mpi4py-fft's own test programs, unmodified, with our transposes and with our classes."""

from __future__ import annotations

import importlib
import inspect

import mpi_harness
import numpy as np
import pytest
import released
from mpi4py import MPI
from mpi_harness import TESTS

from onesided import pencilfft

MODES = ["install", "replace"]


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """The folder of mpi4py-fft's tests, of the version that is installed."""
    version = released.installed_version("mpi4py-fft", "mpi4py_fft")
    return released.source("mpi4py-fft", version, tmp_path_factory.mktemp("mpi4py-fft"))


def run(programs, mode, ranks, name, *functions, method="rma-notify", timeout=200.0, **env):
    program = programs / f"{name}.py"
    assert program.is_file()
    outcome = mpi_harness.run(
        TESTS / "programs" / "dropin.py", ranks, mode, method, str(program), *functions,
        env={"ONESIDED_DROPIN_" + key.upper(): value for key, value in env.items()},
        timeout=timeout,
    )  # fmt: skip
    assert outcome.kind == "pass", outcome.report()
    for function in functions:
        assert f"{function}: 1 times" in outcome.stdout


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


# its get() needs an h5py with MPI: where there is no h5py at all the program leaves it out
@pytest.mark.some(2)
@pytest.mark.parametrize("ranks", [1, 2, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize("mode", MODES)
def test_distributed_arrays(programs, mode, ranks):
    run(programs, mode, ranks, "test_darray", hide="h5py" if mode == "install" else "")


@pytest.mark.some(1)
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize("mode", MODES)
def test_cosine_and_sine_transforms(programs, mode, ranks):
    run(programs, mode, ranks, "test_mpifft", "test_r2r")


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("mode", MODES)
def test_transfers_between_pencils(programs, mode, ranks):
    run(programs, mode, ranks, "test_pencil", timeout=600.0)


@pytest.mark.full
@pytest.mark.parametrize("method", ["rma-fence", "p2p", "mpi"])
def test_transfers_by_another_method(programs, method):
    run(programs, "install", 2, "test_pencil", method=method, timeout=600.0)


# some thousand plans: in two parts, each with both kinds of mpi4py-fft's serial transforms hidden
# or not, so that a part takes minutes and not hours on a busy machine
@pytest.mark.full
@pytest.mark.parametrize("types", ["d", "f"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("mode", MODES)
def test_transforms(programs, mode, ranks, types):
    hide = "pyfftw" if types == "d" else ""
    run(programs, mode, ranks, "test_mpifft", timeout=1500.0, types=types, hide=hide)


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_files(programs, ranks):
    """Ours only: mpi4py-fft's need an h5py, and a netCDF4, with MPI."""
    run(programs, "replace", ranks, "test_io", timeout=600.0)


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
