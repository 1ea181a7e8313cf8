"""How a solver converged: a plot of characters for the terminal, and an image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from onesided.apps.picture import save_lines

HEIGHT = 14
WIDTH = 64
MARKS = "*o+x#@%&"


def text_plot(
    title: str, lines: Mapping[str, Sequence[float]], width: int = WIDTH, height: int = HEIGHT
) -> str:
    """Local. Values over their number, logarithmic, one mark for every name.

    What is zero or not finite is left out; where several lines meet, the first one is seen.
    """
    shown = {
        name: [(k, math.log10(y)) for k, y in enumerate(values) if 0 < y < math.inf]
        for name, values in lines.items()
    }
    heights = [y for points in shown.values() for _, y in points]
    if not heights:
        return f"{title}: nothing to draw"
    low, high = math.floor(min(heights)), math.ceil(max(heights))
    high = max(high, low + 1)
    last = max(1, *(points[-1][0] for points in shown.values() if points))
    rows = [[" "] * width for _ in range(height)]
    for (_, points), mark in reversed(list(zip(shown.items(), _marks(len(shown)), strict=True))):
        for k, y in points:
            rows[_row(y, low, high, height)][round(k / last * (width - 1))] = mark
    step = -(-(high - low) // ((height - 1) // 2))
    labels = {_row(y, low, high, height): f"1e{y:+d}" for y in range(high, low - 1, -step)}
    out = [title]
    out += [f"{labels.get(k, ''):>6} |{''.join(line).rstrip()}" for k, line in enumerate(rows)]
    out.append(f"{'':>6} +{'-' * width}")
    out.append(f"{'':>7}0{last:>{width - 1}}")
    if len(shown) > 1:
        pairs = zip(_marks(len(shown)), shown, strict=True)
        out.append("  ".join(f"{mark} {name}" for mark, name in pairs))
    return "\n".join(out)


def _row(y: float, low: int, high: int, height: int) -> int:
    """Local. The line from the top that shows a decimal logarithm."""
    return round((high - y) / (high - low) * (height - 1))


def _marks(count: int) -> str:
    return (MARKS * (count // len(MARKS) + 1))[:count]


def save_plot(path: str, title: str, label: str, lines: Mapping[str, Sequence[float]]) -> None:
    """Local. The same as an image."""
    curves = {name: (list(range(len(values))), values) for name, values in lines.items()}
    save_lines(path, title, ("iterations", label), curves, x_scale="linear", marker="")
