"""What is wanted of a measurement: bounds by its bytes, its MPI and its labels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Goal:
    """A bound for measurements from ``least`` up to ``most`` bytes.

    ``mpi``: with which MPI, "" with any; ``labels``: which texts the labels have to have.
    """

    bound: float
    least: int = 0
    most: int = 1 << 62
    mpi: str = ""
    labels: Mapping[str, Collection[str]] = field(default_factory=dict)

    def holds(self, nbytes: int, vendor: str, labels: Mapping[str, str]) -> bool:
        """Local. Whether it is about a measurement."""
        return (
            self.least <= nbytes <= self.most
            and self.mpi in ("", vendor)
            and all(labels[name] in texts for name, texts in self.labels.items())
        )


def wanted(goals: Iterable[Goal], nbytes: int, vendor: str, **labels: str) -> float | None:
    """Local. The bound of the first goal that holds; None where there is none."""
    return next((goal.bound for goal in goals if goal.holds(nbytes, vendor, labels)), None)
