"""MiniFE: what all mini-applications have, and the order of convergence."""

from __future__ import annotations

from onesided.apps.reporting.figure import Figure
from onesided.apps.reporting.lines import Lines, Point
from onesided.apps.reporting.quantities import COUNT, Quantity, number
from onesided.apps.reporting.result import known
from onesided.apps.reporting.sections.miniapps import MiniApps

LEVELS = "levels"
AXES = ("x", "y", "z")
ERRORS = ("max error", "rms error")
ERROR = Quantity("relative error", lambda value: f"{value:.2e}", number)


class MiniFe(MiniApps):
    """The figures of a mini-application, and one of errors on finer and finer meshes."""

    def figures(self) -> list[Figure]:
        """Local. The errors last."""
        lines: dict[str, list[Point]] = {}
        for record in self.result.listings.get(LEVELS, []):
            counts = [known(record.get(axis)) for axis in AXES]
            fewest = min((count for count in counts if count is not None), default=None)
            for name in ERRORS:
                error = known(record.get(name))
                if fewest is not None and error is not None:
                    lines.setdefault(name, []).append((fewest, error))
        found = super().figures()
        if any(len(line) > 1 for line in lines.values()):
            words = "Lines of the largest error and of the root of the mean square."
            across = COUNT.called("elements along the axis that has fewest")
            found.append(Lines("Errors on finer and finer meshes", words, across, ERROR, lines))
        return found
