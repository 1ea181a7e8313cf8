"""The parameters of a machine as tables for a person."""

from __future__ import annotations

from collections.abc import Sequence

from onesided.apps.cli.report import Listing
from onesided.collectives.modelling.loggp import PiecewiseLogGP
from onesided.collectives.modelling.parameters import Level, Parameters

SEGMENTS = {"from bytes": ".0f", "L (us)": ".4g", "o (us)": ".4g", "g (us)": ".4g", "G (ns)": ".4g"}
SYNCHRONIZATION = (
    "signal", "barrier", "done", "fence", "empty_fence", "opening", "notice", "epoch", "relock"
)  # fmt: skip


def listings(parameters: Parameters) -> dict[str, Listing]:
    """Local. A table for every kind of transfer, and for the synchronization of every level."""
    found = {"stores": Listing("Stores on the node", SEGMENTS, _rows(parameters.stores))}
    for which in ("node", "network"):
        level: Level | None = getattr(parameters, which)
        if level is None:
            continue
        for kind in ("messages", "collective", "puts"):
            transfer: PiecewiseLogGP | None = getattr(level, kind)
            if transfer is None:
                continue
            title = f"{kind.capitalize()}, {which}"
            found[f"{kind} {which}"] = Listing(title, SEGMENTS, _rows(transfer))
        columns = {f"{name.replace('_', ' ')} (us)": ".4g" for name in SYNCHRONIZATION}
        numbers = [getattr(level, name) * 1e6 for name in SYNCHRONIZATION]
        found[f"synchronization {which}"] = Listing(
            f"Synchronization, {which}", columns, [numbers]
        )
    if parameters.setup:
        columns = {f"{method} (us)": ".4g" for method in parameters.setup}
        numbers = [seconds * 1e6 for seconds in parameters.setup.values()]
        found["setup"] = Listing("Making and freeing a request", columns, [numbers])
    return found


def _rows(transfer: PiecewiseLogGP) -> list[Sequence[float | None]]:
    rows: list[Sequence[float | None]] = []
    for segment in transfer.segments:
        each = segment.loggp
        rows.append(
            [segment.start, each.latency * 1e6, each.overhead * 1e6, each.gap * 1e6,
             each.byte_gap * 1e9]
        )  # fmt: skip
    return rows
