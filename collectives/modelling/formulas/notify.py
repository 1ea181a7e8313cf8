"""Data, then a counter at the target; nobody waits for everybody.

On the node the counters are stored, and seen a moment later. Off the node all k targets are
flushed, get their counters by Accumulate, and are flushed again:
``T = stores + notice(node) + puts + notice(network) + (k - 1) e o``. With one receive slot a
*credit* comes first.

Where Accumulate itself waits for its target, as Open MPI's does over TCP, there are k notices, not
one: the formula is too small by the others on more than two nodes.
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
            others = costs.parameters.level("network").puts.busy(far)
            notices = notices + costs.once("network", "notice", far > 0) + others
        credit = costs.signals(near=False) if costs.traffic.slots == 1 else 0.0
        return credit + costs.stores() + costs.puts() + notices
