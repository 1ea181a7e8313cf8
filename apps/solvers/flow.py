"""A periodic flow without divergence, followed in time by a pseudo-spectral method.

The velocity lives in spectral space. Its rate of change is P(u x omega) - nu k^2 u: the nonlinear
term in rotational form, multiplied in physical space on a finer grid (3/2 rule), where P takes
away the gradient; the pressure never appears. Time steps are those of the classical Runge-Kutta
method of fourth order. All three components go through one batched plan.

Modes whose opposite does not exist (the highest ones of an even number) are kept at zero, and so
is the mean velocity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import sums
from onesided.pencilfft import PFFT, newDistArray

BLOCK_BYTES = 1 << 18  # of a component that is worked on while it is in cache
RUNGE_KUTTA = ((1 / 6, 1 / 2), (1 / 3, 1 / 2), (1 / 3, 1.0), (1 / 6, None))


class Flow:
    """The velocity on a box of side 2 pi, and the memory and plan to follow it.

    Collective over ``comm``, as is all that transforms. ``shape`` counts the modes along each
    axis, ``padding`` the points per mode; ``planned``: what else the plan is given. Memory of a
    rank, beside that of the plan: four spectral and two physical vector fields, and one component
    for k^2; no step allocates.
    """

    def __init__(
        self, comm: MPI.Intracomm, shape: Sequence[int], nu: float, *, padding: float = 1.5,
        effort: str = "estimate", **planned: Any,
    ) -> None:
        self._comm, self.nu = comm, nu
        self.plan = PFFT(
            comm, tuple(shape), dtype=float, padding=False if padding == 1.0 else padding,
            effort=effort, batch=(3,), order="plan", **planned,
        )  # fmt: skip
        #: The velocity in spectral space: the state.
        self.velocity_hat = newDistArray(self.plan, True)
        #: Velocity and vorticity in physical space, as the last rate of change left them.
        self.velocity = newDistArray(self.plan, False)
        self.vorticity = newDistArray(self.plan, False)
        self._rate_hat = newDistArray(self.plan, True)
        self._state, self._rate = _plain(self.velocity_hat), _plain(self._rate_hat)
        self._start, self._next = np.zeros_like(self._state), np.zeros_like(self._state)
        self._wavenumbers, self._square = self._spectrum(shape)
        self._zero = self._without_partner(shape)
        self._planes, self._scratch = _parts(_reals(self._state), 2)
        self._sheets, self._product = _parts(_plain(self.velocity), 4)

    def destroy(self) -> None:
        """Collective. Free the plan."""
        self.plan.destroy()

    def set_velocity(self, velocity: NDArray[Any]) -> None:
        """Collective. Start from this rank's block of a velocity in physical space."""
        _plain(self.velocity)[...] = velocity
        self.plan.forward(self.velocity, self.velocity_hat)
        for where in self._zero:
            self._state[where] = 0.0

    def taylor_green(self) -> None:
        """Collective. Start from the Taylor-Green vortex."""
        x, y, z = self.coordinates()
        horizontal = np.stack([np.sin(x) * np.cos(y), -np.cos(x) * np.sin(y), 0.0 * x * y])
        self.set_velocity(horizontal * np.cos(z))

    def coordinates(self) -> list[NDArray[np.float64]]:
        """Local. Of this rank's points, for broadcasting."""
        shape = self.plan.global_shape(False)[-3:]
        parts = self.plan.local_slice(False)[-3:]
        x = [2 * np.pi / n * np.arange(p.start, p.stop) for n, p in zip(shape, parts, strict=True)]
        return list(np.meshgrid(*x, indexing="ij", sparse=True))

    def step(self, dt: float) -> None:
        """Collective. Go on by a time step."""
        state, rate, start, following = self._state, self._rate, self._start, self._next
        start[...] = state
        following[...] = state
        for weight, ahead in RUNGE_KUTTA:
            self.rate_of_change()
            np.multiply(rate, weight * dt, out=rate)
            np.add(following, rate, out=following)
            if ahead is not None:
                np.multiply(rate, ahead / weight, out=rate)
                np.add(start, rate, out=state)
        state[...] = following

    def rate_of_change(self) -> NDArray[Any]:
        """Collective. Of the velocity, in spectral space; valid until the next call."""
        self._curl()
        self.plan.backward(self.velocity_hat, self.velocity)
        self.plan.backward(self._rate_hat, self.vorticity)
        self._cross()
        self.plan.forward(self.vorticity, self._rate_hat)
        self._project()
        return self._rate

    def find_vorticity(self) -> NDArray[Any]:
        """Collective. The vorticity in physical space; valid until the next rate of change."""
        self._curl()
        self.plan.backward(self._rate_hat, self.vorticity)
        return _plain(self.vorticity)

    def energy(self) -> float:
        """Collective. Half the mean square of the velocity."""
        return 0.5 * self._mean_square(self._state)

    def enstrophy(self) -> float:
        """Collective. Half the mean square of the vorticity."""
        self._curl()
        return 0.5 * self._mean_square(self._rate)

    def divergence(self) -> float:
        """Collective. Of the velocity, relative to the vorticity; both as mean squares, rooted."""
        self._curl()
        vorticity = self._mean_square(self._rate)
        u, reals = _reals(self._state), _reals(self._rate)
        for part in self._planes:
            self._dot(u, part, reals[0, part])
        self._rate[1:] = 0.0
        return float(np.sqrt(self._mean_square(self._rate) / (vorticity or 1.0)))

    def _curl(self) -> None:
        """The vorticity in spectral space, into the rate's memory: i k x u."""
        u, out = _reals(self._state), _reals(self._rate)
        for part in self._planes:
            scratch = self._scratch[0, : part.stop - part.start]
            k = self._wavenumbers_of(part)
            for first in range(3):
                second, third = (first + 1) % 3, (first + 2) % 3
                np.multiply(k[second], u[third, part], out=out[first, part])
                np.multiply(k[third], u[second, part], out=scratch)
                np.subtract(out[first, part], scratch, out=out[first, part])
            block = self._rate[:, part]
            np.multiply(block, 1j, out=block)

    def _cross(self) -> None:
        """u x omega, into the memory of omega."""
        u, omega = _plain(self.velocity), _plain(self.vorticity)
        for part in self._sheets:
            product = self._product[:, : part.stop - part.start]
            for first in range(3):
                second, third = (first + 1) % 3, (first + 2) % 3
                np.multiply(u[second, part], omega[third, part], out=product[first])
                np.multiply(u[third, part], omega[second, part], out=product[3])
                np.subtract(product[first], product[3], out=product[first])
            omega[:, part] = product[:3]

    def _project(self) -> None:
        """Take away the gradient, and add what viscosity does."""
        u, rate = _reals(self._state), _reals(self._rate)
        for part in self._planes:
            gradient, scratch = self._scratch[:, : part.stop - part.start]
            k = self._wavenumbers_of(part)
            self._dot(rate, part, gradient)
            np.divide(gradient, self._square[part], out=gradient)
            for each in range(3):
                np.multiply(k[each], gradient, out=scratch)
                np.subtract(rate[each, part], scratch, out=rate[each, part])
                np.multiply(u[each, part], self._square[part], out=scratch)
                np.multiply(scratch, self.nu, out=scratch)
                np.subtract(rate[each, part], scratch, out=rate[each, part])
        for where in self._zero:
            self._rate[where] = 0.0

    def _dot(self, field: NDArray[Any], part: slice, out: NDArray[Any]) -> None:
        """k . field on some planes; ``out`` may not be the second half of the scratch memory."""
        k, scratch = self._wavenumbers_of(part), self._scratch[1, : part.stop - part.start]
        np.multiply(k[0], field[0, part], out=out)
        for each in (1, 2):
            np.multiply(k[each], field[each, part], out=scratch)
            np.add(out, scratch, out=out)

    def _mean_square(self, field: NDArray[Any]) -> float:
        """Collective. Of a real field in physical space, from the half of its modes kept here."""
        first = self.plan.local_slice(True)[-1].start == 0
        total = 2.0 * float(np.vdot(field, field).real)
        if first and field.size:
            plane = field[..., 0]
            total -= float(np.vdot(plane, plane).real)
        return float(sums(self._comm).of(total)[0])

    def _spectrum(self, shape: Sequence[int]) -> tuple[list[NDArray[Any]], NDArray[Any]]:
        """Local. Wavenumbers for broadcasting, and their squares, 1 where all are zero."""
        parts = self.plan.local_slice(True)[-3:]
        k = [np.fft.fftfreq(n, 1.0 / n) for n in shape]
        k[2] = np.arange(shape[2] // 2 + 1.0)
        own = [each[part] for each, part in zip(k, parts, strict=True)]
        own[2] = np.repeat(own[2], 2)  # for real and imaginary part
        sparse = list(np.meshgrid(*own, indexing="ij", sparse=True))
        square = sparse[0] ** 2 + sparse[1] ** 2 + sparse[2] ** 2
        square[square == 0.0] = 1.0
        return sparse, square

    def _without_partner(self, shape: Sequence[int]) -> list[tuple[Any, ...]]:
        """Local. Where this rank has the mean flow, and modes whose opposite does not exist."""
        parts = self.plan.local_slice(True)[-3:]
        found: list[tuple[Any, ...]] = []
        for axis, (n, part) in enumerate(zip(shape, parts, strict=True)):
            if n % 2 == 0 and part.start <= n // 2 < part.stop:
                found.append((..., n // 2 - part.start, *[slice(None)] * (2 - axis)))
        if all(part.start == 0 < part.stop for part in parts):
            found.append((..., 0, 0, 0))
        return found

    def _wavenumbers_of(self, part: slice) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        x, y, z = self._wavenumbers
        return x[part], y, z


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Local. Without what a DistArray does at every index."""
    return array.view(np.ndarray)


def _reals(array: NDArray[Any]) -> NDArray[Any]:
    """Local. A complex array as one of real numbers, twice as long along the last axis."""
    return array.view(np.float64)


def _parts(field: NDArray[Any], components: int) -> tuple[list[slice], NDArray[Any]]:
    """Local. The first axis of a vector field's block in parts that fit into the cache, and memory
    for so many components of the longest part."""
    length = field.shape[1]
    rows = max(1, BLOCK_BYTES // max(1, field[0, :1].nbytes))
    parts = [slice(start, min(start + rows, length)) for start in range(0, length, rows)]
    return parts, np.empty((components, min(rows, length), *field.shape[2:]))
