"""``bench all``: which experiments came to their end; their results have sections of their own."""

from __future__ import annotations

from onesided.apps.reporting.figure import Figure
from onesided.apps.reporting.section import Block
from onesided.apps.reporting.sections.kind import Kind
from onesided.apps.reporting.table import Table

STATES = ("experiment", "repeats", "command", "state")


class Experiments(Kind):
    """A row for every experiment; nothing to draw."""

    def figures(self) -> list[Figure]:
        """Local. None."""
        return []

    def tables(self) -> list[Block]:
        """Local. What became of each, and why one is missing."""
        entries = self.result.entries
        rows = [[*(entry.label(name) for name in STATES), entry.reason] for entry in entries]
        return [Table("Experiments", [*STATES, "reason"], rows, prose=True)] if rows else []
