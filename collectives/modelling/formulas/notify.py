"""Data, then a counter at the target; nobody waits for everybody.

On the node the counter is stored: its cost is in the method's software and in the stores. Off the
node every target is flushed, gets its counter by Accumulate, and is flushed again, one after the
other: ``T = stores + puts + k notice``. With one receive slot a *credit* comes first, and a target
is done with before the next one is served.
"""

from __future__ import annotations

import numpy as np

from onesided.collectives.modelling.formulas.costs import Costs, Formula
from onesided.collectives.modelling.way import Numbers


class NotifyRound(Formula):
    """Notified stores and Puts."""

    def seconds(self, costs: Costs) -> Numbers:
        far = np.asarray(costs.traffic.far_messages, float)
        notices: Numbers = 0.0
        if np.any(far):
            notices = far * costs.parameters.level("network").notice
        asks = costs.traffic.slots == 1
        credit = costs.signals(near=False) if asks else 0.0
        return credit + costs.stores() + costs.puts(apart=asks) + notices
