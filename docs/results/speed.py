"""``python docs/results/speed.py`` draws docs/pictures/speed.svg from docs/performance.md."""

from __future__ import annotations

from html import escape

import write_tables as tables

DOCS = tables.HERE.parent
PICTURE = DOCS / "pictures" / "speed.svg"
BLUE, ORANGE = "#3b7dd8", "#e07b39"
WIDTH, LEFT, TOP, HIGH = 460, 14, 42, 36  # of the picture, its margins, a bar with its words
SLOTS = "two slots (`recvbuf=None`)"
HAND = "one field over persistent sends by hand, packed"
#: What, over what, and where the number stands: table, line and column.
BARS = [
    ("exchange of 1 KiB", "MPI_Alltoallv", "rounds mpich", SLOTS, "1 KiB"),
    ("exchange of 1 MiB", "MPI_Alltoallv", "rounds mpich", SLOTS, "1 MiB"),
    ("Allreduce of 1 KiB", "MPI_Allreduce", "collectives", "Allreduce", "1 KiB"),
    ("Bcast of a plain array of 1 MiB", "MPI_Bcast", "collectives", "Bcast", "1 MiB"),
    ("ghosts of a grid of 128³", "persistent sends by hand", "halo", HAND, "128³"),
    ("real FFT of 128³", "mpi4py-fft", "fft", "times as fast as mpi4py-fft", "real 128³"),
    ("real FFT of 256³", "mpi4py-fft", "fft", "times as fast as mpi4py-fft", "real 256³"),
    ("sparse product, grid of 64³", "PETSc", "spmv", "27-point grid of 64³", "over PETSc"),
    ("sparse product, brack2", "PETSc", "spmv", "brack2", "over PETSc"),
]
BELOW = ["Two ranks of one node, MPICH 5.0.2; medians, measured in turns.",
         "The line is 1, as fast; a bar that ends before it is slower."]  # fmt: skip


def speed(page: str) -> str:
    """How many times as fast as what people use today; the first number of each cell, MPICH's."""
    values = []
    for _, _, table, line, column in BARS:
        (found,) = [each[4] for each in tables.TABLE.finditer(page) if each[3] == table]
        number = float(tables.read(found)[line][column].split(" / ")[0])
        values.append(number if line.startswith("times as fast") else 1 / number)
    scale, bottom = (WIDTH - LEFT - 44) / max(values), TOP + HIGH * len(BARS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 42}" '
        f'width="{WIDTH}" height="{bottom + 42}" font-family="system-ui, sans-serif" '
        'font-size="13" fill="#222">\n'
        f'<rect width="{WIDTH}" height="{bottom + 42}" fill="#ffffff"/>\n'
        f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">'
        "Times as fast as what people use today</text>"
    ]
    for k, (value, (what, other, *_)) in enumerate(zip(values, BARS, strict=True)):
        y, color = TOP + HIGH * k, BLUE if value >= 1 else ORANGE
        parts.append(f"""\
<text x="{LEFT}" y="{y + 11}" font-size="12">{escape(f"{what}, over {other}")}</text>
<rect x="{LEFT}" y="{y + 16}" width="{scale * value:g}" height="11" fill="{color}"/>
<path d="M {LEFT + scale:g} {y + 13} v 17" stroke="#222" stroke-dasharray="3 2"/>
<text x="{LEFT + scale * value + 6:g}" y="{y + 26}">{value:.1f}</text>""")
    for k, words in enumerate(BELOW):
        y = bottom + 14 + 16 * k
        parts.append(f'<text x="{LEFT}" y="{y}" font-size="11" fill-opacity="0.75">{words}</text>')
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    PICTURE.write_text(speed(page), encoding="utf-8")
