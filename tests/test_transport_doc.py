"""The transport of docs/extending/transport.md, run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "extending" / "transport.md"


def source():
    """The first block of the page; the second one is what :mod:`cases_transport` does."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]


def test_the_page_keeps_its_promise():
    """A transport is one file of about sixty lines."""
    assert len(source().splitlines()) <= 62
