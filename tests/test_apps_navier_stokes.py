"""``onesided navier-stokes``: what is known of the flow, and restarts, those of heat, too."""

from __future__ import annotations

import json

import commands
import h5py
import numpy as np
import pytest
import scipy.fft
from flow_series import ENSTROPHY_SERIES, HIGHEST, series_energy, series_enstrophy

from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.main import build_parser

pytestmark = pytest.mark.one_mpi


def taylor_coefficients(nu):
    """Of energy and enstrophy, from the equations, on a grid that holds all their modes."""
    n = 2 * (HIGHEST + 2)
    x, y, z = np.meshgrid(*[2 * np.pi / n * np.arange(n)] * 3, indexing="ij")
    start = np.array([np.sin(x) * np.cos(y), -np.cos(x) * np.sin(y), 0 * x]) * np.cos(z)
    k = np.array(np.meshgrid(*[np.fft.fftfreq(n, 1 / n)] * 3, indexing="ij"))
    square = np.where((k**2).sum(0) == 0, 1, (k**2).sum(0))

    def there(field):
        return scipy.fft.fftn(field, axes=(1, 2, 3), norm="forward")

    def back(field):
        return scipy.fft.ifftn(field, axes=(1, 2, 3), norm="forward").real

    u = [there(start)]
    for order in range(HIGHEST):
        omega = [back(1j * np.cross(k, each, axis=0)) for each in u]
        pairs = range(order + 1)
        product = there(sum(np.cross(back(u[i]), omega[order - i], axis=0) for i in pairs))
        product -= k * (k * product).sum(0) / square + nu * square * u[-1]
        u.append(product / (order + 1))
    sums = range(HIGHEST + 1)
    energy = [sum(np.vdot(u[i], u[m - i]).real / 2 for i in range(m + 1)) for m in sums]
    enstrophy = [sum(np.vdot(u[i], square * u[m - i]).real / 2 for i in range(m + 1)) for m in sums]
    return energy, enstrophy


@pytest.mark.parametrize("nu", [0.0, 1 / 1600, 0.3])
def test_the_series_is_that_of_the_equations(nu):
    energy, enstrophy = taylor_coefficients(nu)
    for order in range(HIGHEST + 1):
        terms = [float(c) * nu**m for (n, m), c in ENSTROPHY_SERIES.items() if n == order]
        assert enstrophy[order] == pytest.approx(sum(terms), rel=1e-11, abs=1e-13)
    for time in (0.0, 0.05):
        sums = [np.polynomial.polynomial.polyval(time, each) for each in (energy, enstrophy)]
        assert series_energy(time, nu) == pytest.approx(sums[0], rel=1e-9)
        assert series_enstrophy(time, nu) == pytest.approx(sums[1], rel=1e-12)


def test_the_energy_falls_by_what_is_dissipated():
    nu, time, h = 0.01, 0.3, 1e-4
    rate = (series_energy(time + h, nu) - series_energy(time - h, nu)) / (2 * h)
    assert rate == pytest.approx(-2 * nu * series_enstrophy(time, nu), rel=1e-8)


@pytest.mark.parametrize(
    "words",
    [
        ["--reynolds", "0"],
        ["--nu", "-1"],
        ["--nu", "0.1", "--reynolds", "10"],
        ["--time", "1", "--steps", "5"],
        ["--dt", "inf"],
        ["--steps", "0"],
        ["--effort", "none"],
    ],
    ids=" ".join,
)
def test_options_that_are_refused(words):
    with pytest.raises(CommandError, match=words[0]):
        build_parser().parse_args(["navier-stokes", *words])


def command(*words, ranks):
    finished = commands.onesided(*words, ranks=ranks)
    assert finished.code == 0, finished
    return finished


@pytest.mark.parametrize(
    ("name", "words", "field", "error"),
    [
        (
            "navier-stokes --comm rma-notify",
            "--shape 8 9 10 --nu 0.02 --dt 0.05",
            "velocity_hat/3D/",
            1e-15,
        ),
        ("heat --comm grid,halo", "--shape 9 10 --repeats 3", "temperature/2D/", 0.0),
    ],
    ids=["navier-stokes", "heat"],
)
def test_a_restart_on_another_number_of_ranks(name, words, field, error, tmp_path):
    whole, half, rest = (str(tmp_path / word) for word in ("whole.h5", "half.h5", "rest.h5"))
    names = name.split()
    given = [*names, *words.split()]
    command(*given, "--steps", "7", "--checkpoint", whole, ranks=2)
    command(*given, "--steps", "4", "--checkpoint", half, ranks=2)
    path = tmp_path / "out.json"
    more = ["--steps", "3", "--checkpoint", rest, "--json", str(path)]
    command(*names, "--restart", half, *more, ranks=3)
    assert json.loads(path.read_text())["machine"]["ranks"] == 3
    states = []
    for file_name in (whole, rest):
        with h5py.File(file_name) as file:
            states.append(file[f"{field}7"][...])
    assert np.abs(states[0]).max() > 0.01
    np.testing.assert_allclose(states[1], states[0], atol=error, rtol=error)
