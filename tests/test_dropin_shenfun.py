"""shenfun's own tests, unmodified, with our transposes and with our classes.

What is chosen passes with mpi4py-fft alone on the same ranks; others of its tests are for one
rank only (test_assign, test_padding, test_project_2dirichlet, test_dot, test_helmholtz2D and 3D
fail on two by themselves).
"""

from __future__ import annotations

import mpi_harness
import pytest
import released
from mpi_harness import TESTS

CHOSEN = {
    "test_tensorproductspace": ["test_transform", "test_refine", "test_inner"],
    "test_backward": ["test_backward2D", "test_backward2ND", "test_backward3D"],
    "test_curl": ["test_curl"],
    "test_matrices": ["test_biharmonic3D"],
    "test_lagrangian_particles": ["test_lagrangian_particles"],
    "test_fourier": ["test_energy_fourier"],
    "test_forms": ["test_inner"],
    # as it is it needs an h5py with MPI
    "test_io": ["test_regular_2D", "test_mixed_2D", "test_regular_3D", "test_mixed_3D"],
}

pytestmark = pytest.mark.full


@pytest.fixture(scope="session")
def shenfun(tmp_path_factory):
    """shenfun's tests, and a folder with shenfun and what it needs."""
    folder = tmp_path_factory.mktemp("shenfun")
    tests = released.source("shenfun", released.SHENFUN, folder)
    built = folder / "built"
    try:
        import mpi4py_fft  # noqa: F401
    except ImportError:
        released.built(built, "mpi4py-fft")
    released.built(built, f"shenfun=={released.SHENFUN}")
    released.pip("install", "--target", str(built), *released.NEEDED, timeout=600.0)
    return tests, built


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("mode", ["as it is", "install", "replace"])
@pytest.mark.parametrize("name", CHOSEN)
def test_shenfun(shenfun, name, mode, ranks):
    tests, built = shenfun
    outcome = mpi_harness.run(
        TESTS / "programs" / "dropin.py", ranks, mode, "rma-notify",
        str(tests / f"{name}.py"), *CHOSEN[name],
        env={"ONESIDED_DROPIN_PATH": str(built)}, timeout=600.0,
    )  # fmt: skip
    assert outcome.kind == "pass", outcome.report()
    for function in CHOSEN[name]:
        assert f"{function}: " in outcome.stdout
