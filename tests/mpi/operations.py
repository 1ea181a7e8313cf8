"""The table of operations that tests run, from the package, by every method of ours."""

from __future__ import annotations

from onesided.collectives import methods
from onesided.collectives.testing import MEMORY, OPERATIONS, Trial, variants

__all__ = ["MEMORY", "OPERATIONS", "SOME", "Trial", "everything", "variants"]

#: On which ranks something is so.
SOME = {
    "nowhere": lambda comm: False,
    "on the first": lambda comm: comm.rank == 0,
    "on the others": lambda comm: comm.rank > 0,
    "everywhere": lambda comm: True,
}


def everything():
    """Every operation by every one of its methods."""
    return [f"{name} by {method}" for name, operation in OPERATIONS.items()
            for method in methods(operation.family)]
