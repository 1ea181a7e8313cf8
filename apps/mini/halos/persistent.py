"""Ghosts by one persistent request, of any method of :func:`onesided.collectives.methods`."""

from __future__ import annotations

from onesided.apps.mini.halos.halo import Need
from onesided.sparse import Halo


class Persistent(Halo):
    """Collective. ``label``: the method that ``auto`` has chosen."""

    def __init__(self, need: Need, method: str) -> None:
        super().__init__(need.comm, need.pattern, need.dtype, method=method, info=dict(need.info))
        used = self.request.method
        self.label = "" if used == method else used
