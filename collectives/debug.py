"""``ONESIDED_DEBUG=1``."""

from __future__ import annotations

from .request import PersistentRequest


class Watch:
    def __init__(self, request: PersistentRequest) -> None:
        self.request = request

    def before_start(self, slot: int) -> None: ...
    def before_wait(self) -> None: ...
    def after_wait(self) -> None: ...
    def stop(self) -> None: ...


def watch(request: PersistentRequest) -> None:
    """Local."""
