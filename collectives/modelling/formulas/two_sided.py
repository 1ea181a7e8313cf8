"""Messages: ``MPI_Alltoallv``, its persistent form, and persistent point-to-point messages.

All blocks leave at once and are awaited together (what MPICH and Open MPI do with long messages,
and with short ones in groups), so ``T = messages(node) + messages(network)``: LogGP's k messages
one after the other, in both directions at once. Kinds differ by their software alone.
"""

from __future__ import annotations

from onesided.collectives.modelling.formulas.costs import Costs, Formula
from onesided.collectives.modelling.way import Numbers


class Messages(Formula):
    """Blocks by two-sided messages, one per peer."""

    def seconds(self, costs: Costs) -> Numbers:
        return costs.messages()
