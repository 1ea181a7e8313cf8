"""Lines of numbers become arrays, in C; see :mod:`.entries`."""

from typing import Any

from numpy.typing import NDArray

LEAST: int
MOST: int

def set_powers(table: bytes, /) -> None: ...
def parse(
    text: bytes,
    start: int,
    shape: tuple[int, int],
    kind: str,
    /,
    *arrays: NDArray[Any] | None,
) -> tuple[int, int]: ...
