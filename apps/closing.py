"""Giving back what all ranks have made together, where they all go on or all fail alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from onesided.apps.failures import CommandError


@contextmanager
def closing() -> Iterator[ExitStack]:
    """Collective at its end, and after :class:`.CommandError`, which all ranks have.

    Nothing is closed after another error, which one rank may have alone: it ends the job.
    """
    stack = ExitStack()
    try:
        yield stack
    except CommandError:
        stack.close()
        raise
    stack.close()
