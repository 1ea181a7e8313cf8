"""How well the ways scale: against their own times on the fewest ranks of a scaling. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from onesided.apps.mini.overhead import ranks_of
from onesided.apps.mini.row import MiniRow
from onesided.apps.mini.scaling import STRONG

EFFICIENCY = "efficiency"


def add_efficiencies(rows: Sequence[MiniRow]) -> None:
    """Local. To the shares of all rows of a scaling that were timed; 1 on the fewest ranks.

    By means over the runs: in weak scaling the time stays, in strong scaling it shrinks with the
    number of ranks, where a way scales well.
    """
    first: dict[tuple[str, str], MiniRow] = {}
    for row in sorted(rows, key=ranks_of):
        scaling = row.labels.get("scaling", "")
        if row.reason or not scaling:
            continue
        fewest = first.setdefault((scaling, row.labels["method"]), row)
        gain = fewest.mean / row.mean
        if scaling == STRONG:
            gain *= ranks_of(fewest) / ranks_of(row)
        row.shares = {**row.shares, EFFICIENCY: gain}
