"""Several requests at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onesided.collectives import progress
from onesided.collectives.errors import RequestError
from onesided.collectives.handle import INACTIVE
from onesided.collectives.persistent import Persistent


def Startall(requests: Sequence[Persistent]) -> None:
    """Local. Start every request; in any order of the list, which may differ between ranks.

    Raises :class:`RequestError`, before anything is started, where one occurs twice or is not
    inactive. Strictly ordered requests are started in the order of their initialization.
    """
    if len({id(request) for request in requests}) != len(requests):
        raise RequestError("a request occurs twice in Startall")
    for request in requests:
        if request.state is not INACTIVE:
            raise RequestError(f"{request!r} cannot be started; nothing has been started")
    for request in sorted(requests, key=_turn):
        request.Start()


def Waitall(requests: Sequence[Persistent]) -> list[Any]:
    """Wait for every request. Returns their receive arrays in the order of the list.

    Strictly ordered requests are completed in the order in which they were started.
    """
    early = [request for request in progress.ordered if request in requests]
    for request in early:
        request.Wait()
    return [request.Wait() for request in requests]


def _turn(request: Persistent) -> tuple[int, int]:
    """The same order on all ranks for strictly ordered requests; others stay as they are."""
    operation = request.operation
    return (0, 0) if request.any_order else (operation.context.number, operation.number)
