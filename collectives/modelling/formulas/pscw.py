"""Post, start, complete, wait: among the ranks that exchange data.

*Ready* messages, then one access epoch, all of whose targets have posted:
``T = signals + stores + puts + epoch + the messages of the other targets``.
"""

from __future__ import annotations

import numpy as np

from onesided.collectives.modelling.formulas.costs import Costs, Formula
from onesided.collectives.modelling.way import Numbers


class PscwRound(Formula):
    """General active target synchronization."""

    def seconds(self, costs: Costs) -> Numbers:
        traffic = costs.traffic
        rest: Numbers = 0.0
        if np.any(traffic.near_messages):
            rest = costs.parameters.level("node").messages.busy(traffic.near_messages)
        if np.any(traffic.far_messages):
            rest = rest + costs.parameters.level("network").messages.busy(traffic.far_messages)
        data = costs.stores() + costs.puts()
        return costs.signals() + data + costs.at_farthest("epoch") + rest
