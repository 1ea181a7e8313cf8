"""From an agreed operation to a request of one transport, on all ranks or on none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from onesided.collectives.agreement import agree
from onesided.collectives.context import Resources
from onesided.collectives.errors import OnesidedError
from onesided.collectives.exchange import Exchange, agree_on_slots

if TYPE_CHECKING:
    from onesided.collectives.handle import Operation
    from onesided.collectives.persistent import Persistent
    from onesided.collectives.request import PersistentRequest

E = TypeVar("E", bound="PersistentRequest")
R = TypeVar("R", bound="Persistent")
W = TypeVar("W", bound="Operation")


def construct(kind: type[E], exchange: Exchange) -> E:
    """Collective. The request of an exchange, as :func:`build` makes it."""
    agree_on_slots(exchange, kind.most_slots)
    return build(kind, exchange, [exchange.send.array, exchange.recv.array])


def build(kind: Callable[[W, Resources], R], operation: W, keep: Iterable[object]) -> R:
    """Collective. The request; what was made for it is given back where any rank fails.

    ``keep``: the buffers that MPI or peers may touch as long as the request lives.
    """
    resources = Resources(operation.context)
    resources.keep += keep
    request: R | None = None
    error: Exception | None = None
    try:
        request = kind(operation, resources)
    except Exception as problem:
        error = problem
    try:
        agree(operation.context.comm, error, ("built", operation.number))
    except Exception:
        if request is not None:
            request.discard()
        resources.release()
        raise
    if request is None:
        raise OnesidedError("the request was not built")
    return request
