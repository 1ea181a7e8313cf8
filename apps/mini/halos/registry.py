"""The halos by name: the only place where one is chosen. A new one is a file and a line here."""

from __future__ import annotations

from onesided.apps.mini.way import REFERENCE, Way, by_name
from onesided.collectives import methods

_HERE = "onesided.apps.mini.halos"
_WAYS = (
    Way(REFERENCE, f"{_HERE}.two_sided:TwoSided"),
    Way("fence", f"{_HERE}.fence:Fence"),
    Way("fence-threads", f"{_HERE}.fence_threads:FenceThreads"),
    Way("lock-all-threads", f"{_HERE}.lock_all_threads:LockAllThreads"),
    Way("halo", f"{_HERE}.exchange:Exchange"),
)


def ways() -> dict[str, Way]:
    """Local. By name; the methods of persistent exchanges at the end."""
    where = f"{_HERE}.persistent:Persistent"
    return by_name([*_WAYS, *(Way(name, where, {"method": name}) for name in methods())])
