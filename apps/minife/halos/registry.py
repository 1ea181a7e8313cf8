"""The halos of MiniFE by name: the fences of the paper, and those of all mini-applications."""

from __future__ import annotations

from onesided.apps.mini.halos.registry import ways as common
from onesided.apps.mini.way import Way, by_name

_HERE = "onesided.apps.minife.halos"
_WAYS = (
    Way("fence", f"{_HERE}.fence:Fence"),
    Way("fence-threads", f"{_HERE}.fence_threads:FenceThreads"),
)


def ways() -> dict[str, Way]:
    """Local. By name; the methods of persistent exchanges at the end."""
    return by_name([*_WAYS, *common().values()])
