"""Fences: every round ends with a barrier of all ranks.

``T = stores + puts + fence(P)``, where Puts include the flush that the fence performs, and a fence
of P ranks takes longer than one of two by the steps of the barrier that it is. With one receive
slot an empty fence opens the round. A node stores while nothing travels yet where its ranks are
served first, so the parts add up; in the order of Algorithm 2 of paper 000 the Puts travel
meanwhile, and the longer part counts.
"""

from __future__ import annotations

import numpy as np

from onesided.collectives.modelling.formulas.costs import Costs, Formula
from onesided.collectives.modelling.way import Numbers


class FenceRound(Formula):
    """Algorithm 1 on memory that MPI allocated."""

    def seconds(self, costs: Costs) -> Numbers:
        return self.data(costs) + self.closing(costs) + self.opening(costs)

    def data(self, costs: Costs) -> Numbers:
        """Local. Until the blocks are where they belong."""
        return costs.stores() + costs.puts()

    def closing(self, costs: Costs) -> Numbers:
        """Local. The fence at the end: with Puts to complete, or without."""
        put = np.asarray(costs.traffic.far_messages) > 0
        return np.where(put, costs.of_all("fence"), costs.of_all("empty_fence"))

    def opening(self, costs: Costs) -> Numbers:
        """Local. The fence before, which two slots do not need."""
        if costs.traffic.slots > 1:
            return 0.0
        return costs.of_all("empty_fence")


class FenceHierarchyRound(FenceRound):
    """Algorithm 2: the Puts first."""

    def data(self, costs: Costs) -> Numbers:
        return np.maximum(costs.stores(), costs.puts())


class PrintedFenceRound(FenceRound):
    """Algorithm 1 as printed: every block Put, and two fences."""

    def data(self, costs: Costs) -> Numbers:
        return costs.puts(near=True)

    def closing(self, costs: Costs) -> Numbers:
        return costs.of_all("fence")

    def opening(self, costs: Costs) -> Numbers:
        return costs.of_all("opening")
