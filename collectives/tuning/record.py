"""What is known of the methods in one situation, and the decision that follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onesided.collectives.errors import PatternError


@dataclass(frozen=True)
class Cost:
    """Seconds of initializing and freeing a request, and of one round; of the slowest rank."""

    setup: float
    round: float

    def of(self, iterations: int) -> float:
        """Seconds of so many rounds with the set-up (equation 1); of a round alone for 0."""
        return self.setup + iterations * self.round if iterations else self.round


@dataclass(frozen=True)
class Record:
    """Costs by method, and why others do not work here."""

    costs: Mapping[str, Cost]
    refused: Mapping[str, str]

    def covers(self, names: Iterable[str]) -> bool:
        """Local. True where something is known of every one of these methods."""
        return all(name in self.costs or name in self.refused for name in names)

    def ranking(self, names: Iterable[str], iterations: int = 0) -> list[str]:
        """Local. The methods that may work, the best first; last those that were not measured."""
        able = [name for name in names if name not in self.refused]

        def cost(name: str) -> float:
            known = self.costs.get(name)
            return math.inf if known is None else known.of(iterations)

        return sorted(able, key=cost)

    def as_json(self) -> dict[str, Any]:
        """Local. For the file."""
        costs = {name: [cost.setup, cost.round] for name, cost in self.costs.items()}
        return {"seconds": costs, "refused": dict(self.refused)}

    @classmethod
    def from_json(cls, content: Any) -> Record:
        """Local. Raises :class:`PatternError` for anything that :meth:`as_json` did not make."""
        try:
            costs = {
                str(name): Cost(float(setup), float(seconds))
                for name, (setup, seconds) in content["seconds"].items()
            }
            refused = {str(name): str(reason) for name, reason in content["refused"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise PatternError(f"no costs of methods: {error}") from error
        for name, cost in costs.items():
            if not all(math.isfinite(value) and value >= 0 for value in (cost.setup, cost.round)):
                raise PatternError(f"the costs of {name} are {cost.setup} and {cost.round} s")
        return cls(costs, refused)
