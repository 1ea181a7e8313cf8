"""Data, then a counter at the target; nobody waits for everybody.

On the node the counters are stored, and seen a moment later. Off the node every target is flushed,
gets its counter by Accumulate, and is flushed again, one after the other, k times:
``T = stores + notice(node) + puts + k notice(network)``. With one receive slot a *credit* comes
first, and a target is done with before the next one is served.
"""

from __future__ import annotations

import numpy as np

from onesided.collectives.modelling.formulas.costs import Costs, Formula
from onesided.collectives.modelling.way import Numbers


class NotifyRound(Formula):
    """Notified stores and Puts."""

    def seconds(self, costs: Costs) -> Numbers:
        far = np.asarray(costs.traffic.far_messages, float)
        notices = costs.once("node", "notice", np.asarray(costs.traffic.near_messages) > 0)
        if np.any(far):
            notices = notices + far * costs.parameters.level("network").notice
        asks = costs.traffic.slots == 1
        credit = costs.signals(near=False) if asks else 0.0
        return credit + costs.stores() + costs.puts(apart=asks) + notices
