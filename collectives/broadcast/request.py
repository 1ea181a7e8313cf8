"""The persistent broadcast as a request; what moves its data is in ``transports/``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onesided.collectives import construction
from onesided.collectives.debug import Watched
from onesided.collectives.persistent import Persistent

if TYPE_CHECKING:
    from onesided.collectives.broadcast.operation import Broadcast
    from onesided.collectives.context import Resources


class BroadcastRequest(Persistent):
    """A persistent broadcast; made by ``Bcast_init``, never directly.

    The root's buffer must not be modified while the request is active; on the other ranks it is
    written between ``Start`` and the end of ``Wait``, and the caller's from then on: peers write
    to it, or read it, in no other time.
    """

    def __init__(self, broadcast: Broadcast, resources: Resources) -> None:
        super().__init__(broadcast, resources)
        self.broadcast = broadcast
        self.arrays, self._answers = [broadcast.array], [broadcast.given]

    @classmethod
    def build(cls, broadcast: Broadcast) -> BroadcastRequest:
        """Collective. A request of this transport, on all ranks or on none."""
        return construction.build(cls, broadcast, [broadcast.array, broadcast.given])

    @property
    def sendbuf(self) -> Any:
        """Local. The buffer as the caller gave it; ``recvbuf`` is the same one."""
        return self.broadcast.given

    @property
    def root(self) -> int:
        """Local. The rank whose data are sent."""
        return self.broadcast.root

    def watched(self) -> Watched:
        data = [np.frombuffer(self.broadcast.memory(), np.uint8)]
        byte = np.dtype(np.uint8)
        return Watched(data, [[]], byte) if self.broadcast.sends else Watched([], [data], byte)
