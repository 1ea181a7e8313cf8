"""The transport of docs/extending/transport.md, run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "extending" / "transport.md"


def source():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return code


def test_the_page_keeps_its_promise():
    """A transport is one file of about sixty lines."""
    assert len(source().splitlines()) <= 62
