"""The table of operations that tests run, from the package, by every method of ours."""

from __future__ import annotations

from onesided.collectives import methods
from onesided.collectives.testing import MEMORY, OPERATIONS, Trial, variants

__all__ = ["MEMORY", "OPERATIONS", "Trial", "everything", "variants"]


def everything():
    """Every operation by every one of its methods."""
    return [f"{name} by {method}" for name, operation in OPERATIONS.items()
            for method in methods(operation.family)]
