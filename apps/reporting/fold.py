"""Something long that the reader may open."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree.ElementTree import Element

from onesided.apps.reporting.markup import element
from onesided.apps.reporting.table import Table


@dataclass(frozen=True)
class Fold:
    """A table behind a line of text."""

    summary: str
    table: Table

    def block(self) -> Element:
        """Local. For the page."""
        return element("details", None, element("summary", None, self.summary), self.table.block())
