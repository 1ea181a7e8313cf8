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
    rows: NDArray[Any] | None,
    cols: NDArray[Any] | None,
    values: NDArray[Any],
    /,
) -> tuple[int, int]: ...
