"""The page: sections one after the other, with a table of contents, in one file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import groupby
from typing import Protocol
from xml.etree.ElementTree import Element

from onesided.apps.report.figure import Figure
from onesided.apps.report.markup import element, slug, written

# A part of the page: a heading and what stands below it.


class Block(Protocol):
    """A table, a paragraph, a figure."""

    def block(self) -> Element:
        """Local. For the page."""


@dataclass(frozen=True)
class Section:
    """A heading, blocks in order, and sections below it."""

    title: str
    blocks: Sequence[Block] = ()
    below: Sequence[Section] = field(default_factory=tuple)

    @property
    def figures(self) -> list[Figure]:
        """Local. All figures in it, in the order of the page."""
        mine = [block for block in self.blocks if isinstance(block, Figure)]
        return mine + [figure for section in self.below for figure in section.figures]


STYLE = "report.css"


def page(title: str, intro: Sequence[Block], sections: Sequence[Section]) -> str:
    """Local. The whole file; nothing in it refers to anything outside."""
    style = (files("onesided.apps") / "data" / STYLE).read_text(encoding="utf-8")
    head = element(
        "head",
        None,
        element("meta", {"charset": "utf-8"}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("title", None, title),
        element("style", None, style),
    )
    anchors = _anchors(sections)
    entries = (
        element("li", None, element("a", {"href": f"#{anchor}"}, section.title))
        for anchor, section in zip(anchors, sections, strict=True)
    )
    contents = element("nav", {"aria-label": "Contents"}, element("ul", None, *entries))
    body = element(
        "body",
        None,
        element("a", {"class": "skip", "href": "#main"}, "To the results"),
        element("h1", None, title),
        *(block.block() for block in intro),
        contents,
        element(
            "main",
            {"id": "main"},
            *(
                _section(section, 2, anchor)
                for anchor, section in zip(anchors, sections, strict=True)
            ),
        ),
    )
    return f"<!DOCTYPE html>\n{written(element('html', {'lang': 'en'}, head, body))}\n"


def _anchors(sections: Sequence[Section]) -> list[str]:
    """A place in the page for every section; two of the same title get different ones."""
    return [f"s{number}-{slug(section.title)}" for number, section in enumerate(sections, 1)]


def _section(section: Section, level: int, anchor: str) -> Element:
    heading = element(f"h{level}", {"id": f"{anchor}-head"}, section.title)
    below = (
        _section(each, min(level + 1, 6), f"{anchor}-{number}")
        for number, each in enumerate(section.below, 1)
    )
    about = {"id": anchor, "aria-labelledby": f"{anchor}-head"}
    return element("section", about, heading, *_blocks(section.blocks), *below)


def _blocks(blocks: Sequence[Block]) -> Iterator[Element]:
    """Figures that follow each other stand side by side where there is room."""
    for are_figures, run in groupby(blocks, lambda block: isinstance(block, Figure)):
        drawn = [block.block() for block in run]
        if are_figures:
            yield element("div", {"class": "figures"}, *drawn)
        else:
            yield from drawn
