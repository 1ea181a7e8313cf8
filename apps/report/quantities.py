"""What numbers of a report mean, and how they are written in a table and beside an axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from onesided.apps.cli.report import BYTES, UNITS, byte_count, duration


@dataclass(frozen=True)
class Quantity:
    """A name for the axis, how a number is written, and the base of its logarithmic axis.

    ``tick`` writes round numbers shortly, ``show`` any number; ``log``: whether its axis is
    logarithmic; ``whole``: there are only whole numbers of it.
    """

    name: str
    show: Callable[[float], str]
    tick: Callable[[float], str]
    log: bool = True
    base: int = 10
    whole: bool = False

    def called(self, name: str) -> Quantity:
        """Local. The same under another name."""
        return replace(self, name=name)


def number(value: float) -> str:
    """Local. A number that has no unit, in four digits."""
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.4g}"


def _bytes(value: float) -> str:
    return byte_count(round(value))


def _round_bytes(value: float) -> str:
    factor, unit = next((each for each in BYTES if value >= each[0]), (1, "B"))
    return f"{value / factor:g} {unit}"


def _round_time(value: float) -> str:
    factor, unit = next((each for each in UNITS if value >= 0.999 * each[0]), UNITS[-1])
    return f"{value / factor:.3g} {unit}"


TIME = Quantity("median time of an iteration", duration, _round_time)
SIZE = Quantity("bytes", _bytes, _round_bytes, base=2)
RANKS = Quantity("ranks", number, number, base=2, whole=True)
RATIO = Quantity("time over that of MPI", "{:.2f}".format, number)
RATE = Quantity("GB/s", "{:.3g}".format, number)
COUNT = Quantity("count", number, number)
PLAIN = Quantity("number", number, number, log=False)
TURNS = Quantity("iterations", number, number, log=False, whole=True)
