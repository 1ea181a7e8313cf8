"""What a request carries out, as all ranks have agreed on: the base of the operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onesided.collectives.context import Context, Node
from onesided.collectives.hints import Hints


@dataclass
class Operation:
    """An exchange, a broadcast or a reduction.

    ``method`` is the transport by name; ``any_order``: ranks may start and complete requests of it
    in different orders. ``context`` is the communicator with what its requests share, ``hints`` is
    what the caller has said in ``info``, and ``number`` that of the request in its context, the
    same on all ranks.
    """

    method: str
    any_order: bool
    context: Context
    hints: Hints
    number: int

    @property
    def rank(self) -> int:
        """This rank."""
        return self.context.comm.rank

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.context.comm.size

    @property
    def node(self) -> Node:
        """The node of this rank, real or emulated."""
        return self.context.node(self.hints.ranks_per_node)

    @property
    def sent(self) -> Any:
        """The send data as the caller gave them."""
        return None

    @property
    def before(self) -> Callable[[], object] | None:
        """Called in Start before the round, where data do not lie in memory as they travel."""
        return None

    @property
    def after(self) -> Callable[[Any], object] | None:
        """Called with the receive memory of the round by the Wait or Test that completes it."""
        return None

    def buffers(self) -> list[object]:
        """Local. What must be kept alive as long as the request."""
        return []
