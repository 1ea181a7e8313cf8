"""``python docs/_ext/speed.py`` draws docs/pictures/speed.svg from docs/results."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent
PICTURE = DOCS / "pictures" / "speed.svg"
BLUE, ORANGE = "#3b7dd8", "#e07b39"
WIDTH, LEFT, HIGH = 460, 14, 36  # of the picture, of its margin, of a bar with its words
SLOTS = "two slots (`recvbuf=None`)"
HAND = "one field over persistent sends by hand, packed"
PEER = "times as fast as mpi4py-fft"


def reading(name: str, row: str, column: str) -> float:
    """The first number of a cell of docs/results."""
    found = json.loads((DOCS / "results" / f"{name}.json").read_text(encoding="utf-8"))
    (cells,) = [each["measured"] for each in found["rows"] if each["name"] == row]
    return float(cells[found["columns"].index(column)].split("/")[0])


def text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="start" {more}>{escape(words)}</text>'


def speed() -> str:
    """How many times as fast as what people use today; MPICH, two ranks."""
    bars = [
        ("exchange of 1 KiB", "MPI_Alltoallv", 1 / reading("rounds-mpich", SLOTS, "1 KiB")),
        ("exchange of 1 MiB", "MPI_Alltoallv", 1 / reading("rounds-mpich", SLOTS, "1 MiB")),
        ("Allreduce of 1 KiB", "MPI_Allreduce", 1 / reading("collectives", "Allreduce", "1 KiB")),
        ("Bcast of a plain array of 1 MiB", "MPI_Bcast",
         1 / reading("collectives", "Bcast", "1 MiB")),
        ("ghosts of a grid of 128³", "persistent sends by hand", 1 / reading("halo", HAND, "128³")),
        ("real FFT of 128³", "mpi4py-fft", reading("fft", PEER, "real 128³")),
        ("real FFT of 256³", "mpi4py-fft", reading("fft", PEER, "real 256³")),
        ("sparse product, grid of 64³", "PETSc",
         1 / reading("spmv", "27-point grid of 64³", "over PETSc")),
        ("sparse product, brack2", "PETSc", 1 / reading("spmv", "brack2", "over PETSc")),
    ]  # fmt: skip
    scale = (WIDTH - LEFT - 44) / max(value for _, _, value in bars)
    bottom = 42 + HIGH * len(bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 42}" '
        f'width="{WIDTH}" height="{bottom + 42}" font-family="system-ui, sans-serif" '
        'font-size="13" fill="#222">',
        f'<rect width="{WIDTH}" height="{bottom + 42}" fill="#ffffff"/>',
        text(LEFT, 24, "Times as fast as what people use today",
             'font-size="15" font-weight="bold"'),
    ]
    for k, (what, other, value) in enumerate(bars):
        y = 42 + HIGH * k
        parts.append(text(LEFT, y + 11, f"{what}, over {other}", 'font-size="12"'))
        parts.append(f'<rect x="{LEFT}" y="{y + 16}" width="{scale * value:g}" height="11" '
                     f'fill="{BLUE if value >= 1 else ORANGE}"/>')
        parts.append(f'<line x1="{LEFT + scale:g}" y1="{y + 13}" x2="{LEFT + scale:g}" '
                     f'y2="{y + 30}" stroke="#222" stroke-dasharray="3 2"/>')
        parts.append(text(LEFT + scale * value + 6, y + 26, f"{value:.1f}"))
    for k, words in enumerate(["Two ranks of one node, MPICH 5.0.2; medians, measured in turns.",
                               "The line is 1, as fast; a bar that ends before it is slower."]):
        parts.append(text(LEFT, bottom + 14 + 16 * k, words, 'font-size="11" fill-opacity="0.75"'))
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.write_text(speed(), encoding="utf-8")
