"""From an agreed exchange to a request of one transport, on all ranks or on none."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from onesided.collectives.agreement import agree
from onesided.collectives.context import Resources
from onesided.collectives.errors import OnesidedError
from onesided.collectives.exchange import Exchange, agree_on_slots

if TYPE_CHECKING:
    from onesided.collectives.request import PersistentRequest

R = TypeVar("R", bound="PersistentRequest")


def construct(kind: type[R], exchange: Exchange) -> R:
    """Collective. The request; what was made for it is given back where any rank fails."""
    agree_on_slots(exchange, kind.most_slots)
    resources = Resources(exchange.context)
    resources.keep += [exchange.send.array, exchange.recv.array]
    request: R | None = None
    error: Exception | None = None
    try:
        request = kind(exchange, resources)
    except Exception as problem:
        error = problem
    try:
        agree(exchange.context.comm, error, ("built", exchange.number))
    except Exception:
        if request is not None:
            request.discard()
        resources.release()
        raise
    if request is None:
        raise OnesidedError("the request was not built")
    return request
