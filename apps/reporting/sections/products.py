"""``bench spmv``: products by method."""

from __future__ import annotations

from onesided.apps.reporting.bars import Bars
from onesided.apps.reporting.figure import Figure
from onesided.apps.reporting.quantities import TIME
from onesided.apps.reporting.sections.kind import Kind


class Products(Kind):
    """A sparse matrix times a vector."""

    def figures(self) -> list[Figure]:
        """Local. A bar for every method."""
        groups = {
            f"{entry.method} ({entry.label('product')})": {"time": entry.median or 0.0}
            for entry in self.result.timed
        }
        words = f"Bars of the time of a product: {', '.join(groups)}."
        return [Bars("Time of a product", words, TIME, groups, "method")] if groups else []
