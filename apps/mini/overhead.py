"""The time of every way over that of two-sided, by the number of ranks: Figure 8 of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from onesided.apps.mini.row import MiniRow
from onesided.apps.mini.scaling import STRONG, WEAK
from onesided.apps.mini.way import REFERENCE
from onesided.apps.picture import save_lines
from onesided.apps.report import Listing

Point = tuple[float, float]
REMARK = (
    f"Overhead as in Figure 8 of the paper: the mean time over the mean of {REFERENCE} on as many "
    "ranks, and in the columns with +- the standard deviation over the same mean."
)


def overhead(row: MiniRow, reference: MiniRow) -> Point:
    """Local. Mean and standard deviation, over the mean of the reference."""
    return row.mean / reference.mean, row.deviation / reference.mean


def listings(rows: Sequence[MiniRow]) -> dict[str, Listing]:
    """Local. A table of overheads for each scaling of these rows, by its name in JSON."""
    found = {}
    for scaling in _scalings(rows):
        mine = [row for row in rows if row.labels.get("scaling", "") == scaling]
        name = f"{scaling} scaling" if scaling else "all ranks"
        key = f"overhead_{scaling}" if scaling else "overhead"
        found[key] = _listing(f"Time over that of {REFERENCE}, {name}", mine)
    return found


def _scalings(rows: Sequence[MiniRow]) -> list[str]:
    return list(dict.fromkeys(row.labels.get("scaling", "") for row in rows))


def _listing(title: str, rows: Sequence[MiniRow]) -> Listing:
    names = list(dict.fromkeys(row.labels["method"] for row in rows))
    columns = {"ranks": ".0f", f"{REFERENCE} s": ".4g"}
    for name in names:
        columns |= {name: ".3f", f"+- {name}": ".3f"}
    listing = Listing(title, columns)
    for ranks in dict.fromkeys(_ranks(row) for row in rows):
        here = {row.labels["method"]: row for row in rows if _ranks(row) == ranks}
        reference = here[REFERENCE]
        numbers: list[float | None] = [ranks, None if reference.reason else reference.mean]
        for name in names:
            row = here.get(name)
            known = row is not None and not row.reason and not reference.reason
            numbers += overhead(row, reference) if known and row is not None else (None, None)
        listing.rows.append(numbers)
    return listing


def _ranks(row: MiniRow) -> int:
    return int(row.labels.get("ranks", row.more.get("ranks", 0)))


def draw(path: str, title: str, rows: Sequence[MiniRow]) -> None:
    """Local. A line for every way but the reference; weak scaling where there is any, as there."""
    scalings = _scalings(rows)
    scaling = WEAK if WEAK in scalings else STRONG if STRONG in scalings else ""
    mine = [row for row in rows if row.labels.get("scaling", "") == scaling and not row.reason]
    references = {_ranks(row): row for row in mine if row.labels["method"] == REFERENCE}
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for row in mine:
        if row.labels["method"] == REFERENCE or _ranks(row) not in references:
            continue
        x, y = lines.setdefault(row.labels["method"], ([], []))
        x.append(float(_ranks(row)))
        y.append(overhead(row, references[_ranks(row)])[0])
    labels = ("ranks", f"time over that of {REFERENCE}")
    save_lines(path, title, labels, lines)
