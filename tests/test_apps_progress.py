"""What a terminal shows while a file is read; no MPI."""

from __future__ import annotations

import io

from rich.console import Console

from onesided.apps.cli.progress import reading


def test_bytes_are_shown_on_a_terminal():
    stream = io.StringIO()
    out = Console(file=stream, force_terminal=True, width=100)
    with reading(out, "reading m.mtx") as advance:
        advance(500_000, 2_000_000)
    text = stream.getvalue()
    assert "reading m.mtx" in text
    assert "0.5/2.0 MB" in text


def test_nothing_is_shown_elsewhere():
    stream = io.StringIO()
    with reading(Console(file=stream, force_terminal=False), "reading m.mtx") as advance:
        assert advance is None
    assert not stream.getvalue()
    with reading(None, "reading m.mtx") as advance:
        assert advance is None
