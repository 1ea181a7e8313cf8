"""Elements of HTML and SVG, and how they are written: every text in them is escaped there.

What is written is well-formed XML as well, so that a test can parse it strictly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias
from xml.etree.ElementTree import Element

#: What an element may hold; numbers are written as they are.
Child: TypeAlias = "Element | str"

#: The attributes of an element.
Attributes: TypeAlias = Mapping[str, str | float]

VOID = frozenset(("br", "hr", "meta"))
ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
REPLACEMENT = "\ufffd"


def element(
    tag: str, attributes: Attributes | None = None, *children: Child
) -> Element:
    """Local. An element with its children in order; numbers get as many digits as a picture needs.

    Empty texts are left out.
    """
    made = Element(tag, {name: _text(value) for name, value in (attributes or {}).items()})
    last: Element | None = None
    for child in children:
        if not isinstance(child, str):
            made.append(child)
            last = child
        elif last is None:
            made.text = (made.text or "") + child
        else:
            last.tail = (last.tail or "") + child
    return made


def written(node: Element) -> str:
    """Local. The element as text, without what follows it."""
    attributes = "".join(f' {name}="{_safe(value)}"' for name, value in node.attrib.items())
    if node.tag in VOID:
        return f"<{node.tag}{attributes} />"
    inside = _safe(node.text or "") + "".join(
        written(child) + _safe(child.tail or "") for child in node
    )
    return f"<{node.tag}{attributes}>{inside}</{node.tag}>"


def slug(text: str) -> str:
    """Local. A name for files and for places in the page: letters, digits and hyphens."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


def _text(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def _safe(text: str) -> str:
    """Characters that no page may have, such as a lone surrogate of a JSON file, are replaced."""
    return escape(ILLEGAL.sub(REPLACEMENT, text), quote=True)


# A table of a report: in the page it has a caption and heads with a scope, and scrolls if wide.


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


# Something long that the reader may open.


@dataclass(frozen=True)
class Fold:
    """A table behind a line of text."""

    summary: str
    table: Table

    def block(self) -> Element:
        """Local. For the page."""
        return element("details", None, element("summary", None, self.summary), self.table.block())
