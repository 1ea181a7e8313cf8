"""A passive epoch held from initialization: *ready* and *done* are empty messages.

``T = stores + puts + done``, the Puts flushed target by target, all of them issued before. With
one receive slot a rank waits for *ready* first: ``T = signals + stores + puts + done``.

The printed Algorithm 3, made right, releases its own lock, locks all, Puts, unlocks all, and takes
its own again between two barriers: ``T = puts + relock(P)``.
"""

from __future__ import annotations

import numpy as np

from onesided.collectives.modelling.formulas.costs import Costs, Formula
from onesided.collectives.modelling.way import Numbers


class LockRound(Formula):
    """Stores and Puts, a flush, a message to everyone that got some."""

    def seconds(self, costs: Costs) -> Numbers:
        ready = costs.signals() if costs.traffic.slots == 1 else 0.0
        return ready + self.data(costs.stores(), costs.puts()) + costs.signals("done")

    def data(self, stores: Numbers, puts: Numbers) -> Numbers:
        """Local. Until the blocks are where they belong."""
        return stores + puts


class LockHierarchyRound(LockRound):
    """The Puts first, which travel while the node is served."""

    def data(self, stores: Numbers, puts: Numbers) -> Numbers:
        return np.maximum(stores, puts)


class PrintedLockRound(Formula):
    """Algorithm 3 with both barriers."""

    def seconds(self, costs: Costs) -> Numbers:
        return costs.puts(near=True, locked=True) + costs.of_all("relock", barriers=2)
