"""Vectors to start from, the same whatever the number of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def start_block(rows: tuple[int, int], dtype: np.dtype[Any], seed: int = 0) -> NDArray[Any]:
    """Local. The entries of a half-open range of a random vector that depends on the seed alone.

    Real and imaginary part are even between -1 and 1.
    """
    start, stop = rows
    draws = 2 if dtype.kind == "c" else 1
    bits = np.random.PCG64(seed)
    bits.advance(draws * start)  # a number takes one step of the generator
    numbers = 2.0 * np.random.Generator(bits).random(draws * (stop - start)) - 1.0
    values = numbers.view(np.complex128) if draws == 2 else numbers
    return values.astype(dtype)
