"""How a line is cut into a matrix: factors of its length, or a longer convolution. Pure.

The unit of all costs is one multiplication and addition in a transform of radix 2. They are
rough: they have to tell whether few long transforms on few ranks, or on all ranks two transforms
of at least twice the length, take less time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from onesided.collectives.errors import PatternError

#: Longest line for which the squares in the chirp fit integers of 64 bits.
LONGEST_CHIRP = 3_000_000_000

#: Cost of an exchange: per element of the rank that has most, and once.
_MOVED, _EXCHANGE = 4.0, 2000.0

#: What the cost grows by when one of the factors is twice the other: long lines leave the cache.
_SLENDER = 0.02


@dataclass(frozen=True)
class LineFactors:
    """Rows n1 and columns n2 of the matrix; ``padded``: of Bluestein's convolution."""

    n1: int
    n2: int
    padded: bool


def choose_factors(length: int, parts: int, real: bool) -> LineFactors:
    """Local. The matrix with the lowest cost for a line of ``length`` over ``parts`` ranks.

    Raises :class:`PatternError` for a length below 1.
    """
    if length < 1:
        raise PatternError(f"a line of {length} elements cannot be transformed")
    found = [
        (_four_step_cost(n1, length // n1, parts, real), LineFactors(n1, length // n1, False))
        for n1 in divisors(length)
    ]
    if length <= LONGEST_CHIRP:
        least = length + (length // 2 + 1 if real else length) - 1
        found += [
            (_padded_cost(m1, m2, parts), LineFactors(m1, m2, True))
            for m1, m2 in smooth_factors(least, parts)
        ]
    return min(found, key=lambda entry: (entry[0], entry[1].padded, -entry[1].n1))[1]


def divisors(number: int) -> list[int]:
    """Local. All divisors, ascending."""
    found = [1]
    for prime, power in prime_factors(number).items():
        found = [d * prime**e for d in found for e in range(power + 1)]
    return sorted(found)


def prime_factors(number: int) -> dict[int, int]:
    """Local. Prime factors and their powers."""
    powers: dict[int, int] = {}
    factor = 2
    while factor * factor <= number:
        while number % factor == 0:
            powers[factor] = powers.get(factor, 0) + 1
            number //= factor
        factor += 1 if factor == 2 else 2
    if number > 1:
        powers[number] = powers.get(number, 0) + 1
    return powers


@lru_cache(maxsize=4096)
def kernel_cost(length: int) -> float:
    """Local. Of one local transform: by its prime factors, or by a longer one where cheaper."""
    if length == 1:
        return 1.0
    by_factors = sum(
        power * (math.log2(prime) if prime < 12 else prime / 2)
        for prime, power in prime_factors(length).items()
    )
    return length * min(by_factors, 6.0 * math.log2(2 * length))


def smooth_factors(least: int, parts: int) -> Iterator[tuple[int, int]]:
    """Local. Pairs of numbers with a product of at least ``least``, no pair wastefully large.

    Either is a product of 2, 3 and 5, or such a number times ``parts``.
    """
    root = math.isqrt(least)
    numbers = sorted({s * p for p in (1, parts) for s in _smooth(8 * root + 8)})
    for m1 in numbers:
        if root <= 4 * m1 and m1 <= 4 * root + 4:
            wanted = -(-least // m1)
            yield m1, next(m2 for m2 in numbers if m2 >= wanted)


def _smooth(most: int) -> list[int]:
    """Products of 2, 3 and 5 up to ``most``, which is at least 1."""
    found = [1]
    for prime in (2, 3, 5):
        for number in list(found):
            while number * prime <= most:
                number *= prime
                found.append(number)
    return sorted(found)


def _four_step_cost(n1: int, n2: int, parts: int, real: bool) -> float:
    columns, rows = -(-n2 // parts), -(-(n1 // 2 + 1 if real else n1) // parts)
    work = columns * kernel_cost(n1) / (2 if real else 1) + rows * kernel_cost(n2)
    moved = max(columns * n1 / (2 if real else 1), rows * n2)
    return (work + 3 * (_MOVED * moved + _EXCHANGE)) * _slenderness(n1, n2)


def _padded_cost(m1: int, m2: int, parts: int) -> float:
    columns, rows = -(-m2 // parts), -(-m1 // parts)
    work = 2 * (columns * kernel_cost(m1) + rows * kernel_cost(m2))
    moved = max(columns * m1, rows * m2)
    return (work + 4 * (_MOVED * moved + _EXCHANGE)) * _slenderness(m1, m2)


def _slenderness(n1: int, n2: int) -> float:
    return 1 + _SLENDER * abs(math.log2(n1 / n2))
