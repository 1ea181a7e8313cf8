"""The method chosen by measurement on data of the real size in the real kind of memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.broadcast import registry
from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.broadcast.request import BroadcastRequest
from onesided.collectives.context import Resources
from onesided.collectives.errors import ResourceError
from onesided.collectives.memory import Region
from onesided.collectives.registry import Method
from onesided.collectives.tuning import estimate, situation
from onesided.collectives.tuning.choice import choose

#: Most bytes that are sent for a measurement; longer data behave as these do.
MOST = 1 << 24


class Auto(BroadcastRequest):
    """Measures the candidates, or recalls what was measured, and becomes the best one.

    Never a strictly ordered one. With the info key ``expected_iterations`` = N the cost
    T_init + N T of each decides, and measuring takes no more than a twentieth of the expected
    time; without it T alone. Measured on scratch memory of the same kind: the caller's is not
    touched. With ``effort=estimate`` in the info nothing is measured: LogGP decides between nodes,
    and on one node the first candidate is taken.
    """

    @classmethod
    def build(cls, broadcast: Broadcast) -> BroadcastRequest:
        """Collective. The request of the best method; all ranks choose the same one."""
        resources = Resources(broadcast.context)
        scratch = _scratch(broadcast, resources)

        def trial(method: Method[BroadcastRequest]) -> BroadcastRequest:
            number = broadcast.context.next_tag()
            return method.load().build(replace(
                broadcast, method=method.name, array=scratch, given=scratch, number=number
            ))

        def build(method: Method[BroadcastRequest]) -> BroadcastRequest:
            return method.load().build(replace(broadcast, method=method.name))

        known = registry.broadcast_methods().values()
        candidates = [m for m in known if m.candidate and m.any_order]
        found = situation.of_broadcast(broadcast)
        try:
            ask = partial(estimate.of_broadcast, broadcast)
            return choose(broadcast.context, found, candidates, trial, build, ask, broadcast.hints)
        finally:
            resources.release()


def _scratch(broadcast: Broadcast, resources: Resources) -> NDArray[np.uint8]:
    """Collective. Memory of the same kind as the buffer; plain where that is too little."""
    context, nbytes = broadcast.context, min(broadcast.nbytes, MOST)
    inside = broadcast.in_window_memory
    try:
        region = Region(context, context.node(), nbytes if inside else 0)
    except ResourceError:
        inside = False
    else:
        resources.on_release(region.retire)
    scratch = region.take_root()[:nbytes] if inside else np.empty(nbytes, np.uint8)
    scratch[:] = 1  # untouched pages would all be one and the same
    return scratch
