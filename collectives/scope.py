"""Objects that a ``with`` block frees at its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Scoped(ABC):
    """Freed where the block ends well. After an exception nothing is called, because freeing may
    be collective and other ranks may not come; what is left is given back at the end."""

    @abstractmethod
    def Free(self) -> None:
        """Give everything back; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.Free()
