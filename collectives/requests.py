"""Several requests at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onesided.collectives import progress
from onesided.collectives.errors import RequestError
from onesided.collectives.handle import INACTIVE
from onesided.collectives.progress import Request


def Startall(requests: Sequence[Request]) -> None:
    """Local. Start every request; in any order of the list, which may differ between ranks.

    Raises :class:`RequestError`, before anything is started, where one occurs twice or is not
    inactive. Strictly ordered requests are started in the order of their initialization.
    """
    if len({id(request) for request in requests}) != len(requests):
        raise RequestError("a request occurs twice in Startall")
    for request in requests:
        if request.state is not INACTIVE:
            raise RequestError(f"{request!r} cannot be started; nothing has been started")
    for request in sorted(requests, key=lambda request: request.turn):
        request.Start()


def Waitall(requests: Sequence[Request]) -> list[Any]:
    """Wait for every request. Returns their receive arrays in the order of the list.

    Strictly ordered requests are completed in the order in which they were started.
    """
    early = [request for request in progress.ordered if request in requests]
    for request in early:
        request.Wait()
    return [request.Wait() for request in requests]
