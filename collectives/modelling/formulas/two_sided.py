"""Messages: ``MPI_Alltoallv``, its persistent form, and persistent point-to-point messages.

All blocks leave at once and are awaited together (what MPICH and Open MPI do with long messages,
and with short ones in groups), so ``T = messages(node) + messages(network)``: LogGP's k messages
one after the other, in both directions at once. The collectives of an MPI may send them by other
protocols than messages of the user's, so these have parameters of their own. MPICH sends a rank's
own block as a message, too.
"""

from __future__ import annotations

from onesided.collectives.modelling.formulas.costs import Costs, Formula
from onesided.collectives.modelling.way import Numbers


class Collective(Formula):
    """MPI's own collective."""

    copies_own = False

    def seconds(self, costs: Costs) -> Numbers:
        return costs.messages(collective=True)


class PointToPoint(Formula):
    """Blocks by the user's messages, one per peer."""

    def seconds(self, costs: Costs) -> Numbers:
        return costs.messages()
