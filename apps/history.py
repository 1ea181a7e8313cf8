"""Energy and dissipation of a flow over time, and how they compare with what is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from onesided.apps.failures import CommandError
from onesided.apps.flow import Flow
from onesided.apps.report import Listing
from onesided.apps.taylor_green import (
    EARLY,
    PEAK_DISSIPATION,
    PEAK_SOURCE,
    PEAK_TIME,
    PUBLISHED_ENERGY,
    PUBLISHED_SOURCE,
    PUBLISHED_TIME,
    REYNOLDS,
    series_energy,
    series_enstrophy,
    series_error,
)
from onesided.apps.verdict import Verdict

COLUMNS = {
    "time": ".4g",
    "energy": ".10f",
    "dissipation": ".6e",
    "energy by series": ".10f",
    "dissipation by series": ".6e",
    "divergence": ".1e",
}
SERIES_MODES = 16  # along each axis, for the flow of the first instants
PEAK_MODES = 64  # with which the peak of the dissipation begins to show
ROUNDING = 1e-12
PUBLISHED_DIGITS = 1e-10  # of the published energy
PEAK_TOLERANCE = 0.15


@dataclass(frozen=True)
class Moment:
    """What is known of a flow at one time. Dissipation is 2 nu times the enstrophy."""

    time: float
    energy: float
    enstrophy: float
    divergence: float

    @property
    def early(self) -> bool:
        """Local. Whether the series holds; times are sums of time steps, with their rounding."""
        return self.time < EARLY + 1e-9


class History:
    """Local. Moments of the Taylor-Green vortex of so many modes, and their verdicts."""

    def __init__(self, shape: Sequence[int], nu: float, dt: float) -> None:
        self._shape, self._nu, self._dt = tuple(shape), nu, dt
        self.moments: list[Moment] = []

    def add(self, time: float, flow: Flow) -> None:
        """Collective. Look at the flow; :class:`CommandError` where it has blown up."""
        moment = Moment(time, flow.energy(), flow.enstrophy(), flow.divergence())
        if not math.isfinite(moment.enstrophy):
            raise CommandError(
                f"the flow has blown up by time {time:.4g}: --dt {self._dt:g} is too long"
            )
        self.moments.append(moment)

    def listing(self) -> Listing:
        """Local. The table over time."""
        modes = " x ".join(map(str, self._shape))
        viscosity = f"Re = {1 / self._nu:.6g}" if self._nu else "without viscosity"
        title = f"Taylor-Green vortex, {viscosity}, {modes} modes, time step {self._dt:g}"
        listing = Listing(title, COLUMNS)
        for each in self.moments:
            energy = dissipation = None
            if each.early:
                energy = series_energy(each.time, self._nu)
                dissipation = 2 * self._nu * series_enstrophy(each.time, self._nu)
            listing.rows.append(
                (
                    each.time,
                    each.energy,
                    2 * self._nu * each.enstrophy,
                    energy,
                    dissipation,
                    each.divergence,
                )
            )
        return listing

    def verdicts(self) -> dict[str, Verdict]:
        """Local. What can be checked with these moments, by what it is."""
        largest = max(each.divergence for each in self.moments)
        found = {"divergence relative to vorticity": Verdict(largest, ROUNDING)}
        if self._nu == 0:
            first, last = self.moments[0], self.moments[-1]
            lost = abs(last.energy / first.energy - 1.0)
            allowed = self._of_time_step(self.moments)
            found["energy lost without viscosity"] = Verdict(lost, allowed)
        return found | self._early() | self._published()

    def _of_time_step(self, moments: Sequence[Moment]) -> float:
        """Relative error that the time steps explain: of fourth order in the fastest strain."""
        strain = math.sqrt(2 * max(each.enstrophy for each in moments))
        span = moments[-1].time - moments[0].time
        return ROUNDING + max(1.0, strain * span) * (self._dt * strain) ** 4

    def _early(self) -> dict[str, Verdict]:
        early = [each for each in self.moments if each.early and each.time > 0]
        if not early or min(self._shape) < SERIES_MODES:
            return {}
        error = allowed = 0.0
        for each in early:
            known = series_enstrophy(each.time, self._nu)
            error = max(error, abs(each.enstrophy / known - 1.0))
            allowed = max(allowed, series_error(each.time, self._nu) / known)
        allowed += self._of_time_step(early)
        return {f"enstrophy up to t = {early[-1].time:.4g} by series": Verdict(error, allowed)}

    def _published(self) -> dict[str, Verdict]:
        found: dict[str, Verdict] = {}
        if not math.isclose(self._nu, 1 / REYNOLDS):
            return found
        for each in self.moments:
            if math.isclose(each.time, PUBLISHED_TIME) and min(self._shape) >= SERIES_MODES:
                error = abs(each.energy / PUBLISHED_ENERGY - 1.0)
                what = f"energy at t = {PUBLISHED_TIME}, {PUBLISHED_SOURCE}"
                found[what] = Verdict(error, PUBLISHED_DIGITS + self._of_time_step([each]))
        peak = self._peak()
        if peak is not None and min(self._shape) >= PEAK_MODES:
            error = abs(2 * self._nu * peak.enstrophy / PEAK_DISSIPATION - 1.0)
            found[f"peak of the dissipation, {PEAK_SOURCE}"] = Verdict(error, PEAK_TOLERANCE)
        return found

    def _peak(self) -> Moment | None:
        """The largest dissipation, where the time before and after it has been seen."""
        best = max(self.moments, key=lambda each: each.enstrophy)
        seen = self.moments[0].time < PEAK_TIME - 2.0 and self.moments[-1].time > PEAK_TIME + 1.0
        return best if seen and best is not self.moments[-1] else None

    def remarks(self) -> list[str]:
        """Local. Sentences on the peak of the dissipation, if it was seen at this viscosity."""
        peak = self._peak()
        if peak is None or not math.isclose(self._nu, 1 / REYNOLDS):
            return []
        return [
            f"Largest dissipation {2 * self._nu * peak.enstrophy:.4e} at t = {peak.time:.2f}; "
            f"published {PEAK_DISSIPATION:.4e} at t = {PEAK_TIME} ({PEAK_SOURCE})."
        ]
