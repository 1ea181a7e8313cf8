"""Rows of a benchmark that compare ours with one opponent, and what is to be reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from onesided.apps.report import NOTHING, Row, duration
from onesided.apps.targets import Target


@dataclass
class Comparison(Row):
    """One thing of ours against one opponent; of the table only what is compared.

    ``aim``: what is compared, and the bound, which is no target unless ``values`` has it.
    """

    aim: Target | None = None

    def cells(self) -> dict[str, str]:
        """Local. For the table."""
        if self.reason:
            return dict(self.labels)
        target, reached = self.values["target"], self.values["reached"]
        return {
            **{name: text for name, text in self.labels.items() if name != "bound"},
            "ours": duration(median(self.times)),
            "opponent's": duration(median(self.details["opponent's"])),
            "reached": f"{reached:.2f}",
            "target": NOTHING if target is None else f"{self.labels['bound']} {target:.2f}",
        }

    def record(self) -> dict[str, Any]:
        """Local. For JSON, with every time of the opponent, in the order of ours."""
        theirs = self.details.get("opponent's")
        more = {} if theirs is None else {"opponents_times_s": list(theirs)}
        return super().record() | more

    @property
    def wanted(self) -> bool:
        """Local. Whether there is a target."""
        return self.values.get("target") is not None

    @property
    def missed(self) -> str:
        """Local. In words, what was not reached; empty where it was, or nothing is wanted."""
        reached = self.values.get("reached")
        if self.aim is None or reached is None or not self.wanted or self.aim.met(reached):
            return ""
        left_out = ("bound", "opponent")
        what = " ".join(text for name, text in self.labels.items() if name not in left_out)
        return (
            f"{what} against {self.aim.opponent}: {reached:.2f}, "
            f"{self.aim.words} {self.aim.bound:.2f} is wanted"
        )


def comparison(
    labels: Mapping[str, str],
    ours: Sequence[float],
    theirs: Sequence[float],
    aim: Target,
    *,
    wanted: bool,
    nbytes: int = 0,
) -> Comparison:
    """Local. Times of the same rounds; ``aim`` names the opponent, ``wanted``: it is a target."""
    return Comparison(
        {**labels, "opponent": aim.opponent, "bound": aim.words},
        ours,
        nbytes=nbytes,
        details={"opponent's": theirs},
        values={"target": aim.bound if wanted else None, "reached": aim.reached(ours, theirs)},
        aim=aim,
    )


def any_missed(rows: Sequence[Row]) -> bool:
    """Local. Whether a target has not been reached."""
    return any(isinstance(row, Comparison) and bool(row.missed) for row in rows)


def conclusions(rows: Sequence[Row], nothing: str) -> list[str]:
    """Local. How many targets have been reached, and which not; ``nothing``: if none is set."""
    wanted = [row for row in rows if isinstance(row, Comparison) and row.wanted]
    missed = [row.missed for row in wanted if row.missed]
    if not wanted:
        return [nothing]
    counted = f"{len(wanted) - len(missed)} of {len(wanted)} targets reached"
    return [counted, *(f"missed: {each}" for each in missed)]
