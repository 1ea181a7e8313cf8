"""A table of a report: in the page it has a caption and heads with a scope, and scrolls if wide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from onesided.apps.reporting.markup import Child, element


@dataclass(frozen=True)
class Table:
    """A caption, the names of columns, and rows of cells.

    The first ``heads`` columns say what a row is about; the others are numbers, unless ``prose``.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Child]]
    heads: int = 1
    prose: bool = False

    def block(self) -> Element:
        """Local. For the page."""
        head = element(
            "tr",
            None,
            *(
                element("th", {"scope": "col"} | self._kind(place), name)
                for place, name in enumerate(self.columns)
            ),
        )
        table = element(
            "table",
            {"class": "prose"} if self.prose else None,
            element("caption", None, self.caption),
            element("thead", None, head),
            element("tbody", None, *(self._row(row) for row in self.rows)),
        )
        # a region that scrolls must be reachable with the keyboard, and have a name
        about = {"class": "scroll", "role": "region", "tabindex": "0", "aria-label": self.caption}
        return element("div", about, table)

    def _row(self, row: Sequence[Child]) -> Element:
        cells = []
        for place, cell in enumerate(row):
            tag = "th" if place == 0 and self.heads else "td"
            scope = {"scope": "row"} if tag == "th" else {}
            cells.append(element(tag, scope | self._kind(place), cell))
        return element("tr", None, *cells)

    def _kind(self, place: int) -> dict[str, str]:
        return {} if self.prose or place < self.heads else {"class": "number"}


@dataclass(frozen=True)
class Paragraph:
    """A sentence or more."""

    text: str
    kind: str = ""

    def block(self) -> Element:
        """Local. For the page."""
        return element("p", {"class": self.kind} if self.kind else None, self.text)
