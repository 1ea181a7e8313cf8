"""Combinations of the values of several axes in which every pair of values occurs once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: Combinations that are looked at for each one that is taken.
TRIES = 30


def combined(
    axes: Mapping[str, Sequence[Any]], seed: int,
    allowed: Callable[[dict[str, Any]], bool] = lambda each: True,
) -> list[dict[str, Any]]:  # fmt: skip
    """Few combinations, the same for the same seed, with every pair of values of two axes that is
    in any allowed combination."""
    chance, names = random.Random(seed), list(axes)

    def pairs(each: dict[str, Any]) -> set[tuple[Any, ...]]:
        return {(a, each[a], b, each[b]) for a, b in itertools.combinations(names, 2)}

    def tried(fixed: dict[str, Any]) -> list[dict[str, Any]]:
        made = [{n: chance.choice(list(axes[n])) for n in names} | fixed for _ in range(TRIES)]
        return [each for each in made if allowed(each)]

    missing = {(a, x, b, y): None for a, b in itertools.combinations(names, 2)
               for x in axes[a] for y in axes[b]}
    found = []
    while missing:
        a, x, b, y = next(iter(missing))
        choices = tried({a: x, b: y})
        if not choices:
            del missing[a, x, b, y]
            continue
        best = max(choices, key=lambda each: len(pairs(each) & missing.keys()))
        for pair in pairs(best):
            missing.pop(pair, None)
        found.append(best)
    return found
