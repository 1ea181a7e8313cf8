"""A part of the page: a heading and what stands below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol
from xml.etree.ElementTree import Element

from onesided.apps.reporting.figure import Figure


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
