"""Groups go straight into the receiver's memory: stored on the node, Put off it.

The receive buffer comes from :func:`~onesided.collectives.empty`, so that the sender can reach it
without any collective call.
"""

from __future__ import annotations

from onesided.collectives.partitioned.letter import BY_WINDOW, NOWHERE, ON_NODE, Letter
from onesided.collectives.partitioned.link import Inbound, Link, Outbound
from onesided.collectives.partitioned.transports.board import BoardReceive, BoardSend
from onesided.collectives.partitioned.transports.remote import (
    CreditedReceive,
    CreditedSend,
    RemoteReceive,
    RemoteSend,
)

#: How the sender sees the receive buffer: the two ends. Where it sees none there are no bytes.
WAYS: dict[int, tuple[type[Outbound], type[Inbound]]] = {
    ON_NODE: (BoardSend, BoardReceive),
    BY_WINDOW: (RemoteSend, RemoteReceive),
    NOWHERE: (CreditedSend, CreditedReceive),
}


class Send(Outbound):
    """The sending end, by where the receive buffer is."""

    @classmethod
    def of(cls, link: Link) -> Outbound:
        return WAYS[link.receiver.visible][0](link)

    @classmethod
    def obstacle(cls, sender: Letter, receiver: Letter) -> str:
        if receiver.visible != NOWHERE or not receiver.nbytes:
            return ""
        return (
            "the receive buffer is not in memory from empty() that the sender can reach, or all "
            "links of it are in use"
        )

    @classmethod
    def recommended(cls, sender: Letter, receiver: Letter) -> bool:
        return receiver.visible == ON_NODE


class Receive(Inbound):
    """The receiving end, by where the receive buffer is."""

    @classmethod
    def of(cls, link: Link) -> Inbound:
        return WAYS[link.receiver.visible][1](link)
