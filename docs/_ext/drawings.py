"""The drawings of the pages, as SVG that takes the colour of the text around it.

``python docs/_ext/drawings.py`` writes those that stand in files, into docs/pictures.
"""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent
PICTURES = DOCS / "pictures"
BLUE, ORANGE, GREEN, GREY = "#3b7dd8", "#e07b39", "#3a9d6a", "#9aa0a6"
COLOURS = (BLUE, ORANGE, GREEN, "#8e63c7")
FONT = 'font-family="system-ui, sans-serif" font-size="13"'
PAGE = 'style="fill:var(--color-background-primary)"'  # the colour of the page behind a drawing


def svg(width: float, height: float, parts: list[str], back: str = "") -> str:
    """A whole drawing; ``back`` is the colour behind one that stands in a file of its own.

    On a narrow screen it shrinks as far as its words can be read, and scrolls then.
    """
    paper = f'<rect width="{width:g}" height="{height:g}" fill="{back}"/>' if back else ""
    colour = "#222" if back else "currentColor"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" style="min-width:{0.75 * width:.0f}px" {FONT} '
        f'fill="{colour}" color="{colour}">'
        f"{paper}{''.join(parts)}</svg>"
    )


def text(x: float, y: float, words: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" {more}>{escape(words)}</text>'


def rect(
    x: float, y: float, w: float, h: float, fill: str = "none", more: str = 'stroke="currentColor"'
) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="{fill}" {more}/>'


def line(x1: float, y1: float, x2: float, y2: float, more: str = "") -> str:
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="currentColor" {more}/>'
    )


def arrow(x1: float, y1: float, x2: float, y2: float, dashed: bool = False) -> str:
    """A line with a head at its end."""
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    dx, dy = 8 * (x2 - x1) / length, 8 * (y2 - y1) / length
    head = f"{x2:g},{y2:g} {x2 - dx - dy / 2:g},{y2 - dy + dx / 2:g}"
    head += f" {x2 - dx + dy / 2:g},{y2 - dy - dx / 2:g}"
    dashes = 'stroke-dasharray="5 4"' if dashed else ""
    return line(x1, y1, x2, y2, dashes) + f'<polygon points="{head}"/>'


# -- sequence diagrams ----------------------------------------------------------------------------

STEP = re.compile(r"(\d+) (->|\.>) (\d+): (.*)")
NOTE = re.compile(r"(\d+): (.*)")
ALL = re.compile(r"== (.*)")


def sequence(words: str) -> str:
    """Who tells whom what, downwards in time.

    The first line names the lanes, ``rank 0 | rank 1``. Below: ``0 -> 1: words`` is an arrow,
    ``0 .> 1: words`` a dashed one, ``0: words`` what a lane does by itself, ``== words`` what all
    do together.
    """
    first, *steps = [each.strip() for each in words.strip().splitlines()]
    names = [name.strip() for name in first.split("|")]
    gap, top, high = 290, 34, 34
    wide = [150.0] * len(names)  # half of what a lane needs
    for found in filter(None, map(NOTE.fullmatch, steps)):
        wide[int(found[1])] = max(wide[int(found[1])], noted(found[2]) / 2 + 8)
    at = [wide[0] + gap * i for i in range(len(names))]
    width, bottom = at[-1] + wide[-1], top + high * len(steps) + 16
    bold = 'font-weight="bold"'
    parts = [text(x, 18, name, more=bold) for x, name in zip(at, names, strict=True)]
    parts += [line(x, top - 8, x, bottom, 'stroke-opacity="0.4"') for x in at]
    for number, step in enumerate(steps):
        y = top + high * number + high / 2
        if found := STEP.fullmatch(step):
            a, b = at[int(found[1])], at[int(found[3])]
            parts.append(arrow(a, y + 6, b, y + 6, found[2] == ".>"))
            parts.append(text((a + b) / 2, y, found[4], more='font-size="12"'))
        elif found := NOTE.fullmatch(step):
            lane, w = int(found[1]), noted(found[2])
            parts.append(rect(at[lane] - w / 2, y - 12, w, 24, more=PAGE))  # hides the lane
            parts.append(rect(at[lane] - w / 2, y - 12, w, 24, BLUE, 'fill-opacity="0.18" rx="5"'))
            parts.append(text(at[lane], y + 4, found[2], more='font-size="12"'))
        elif found := ALL.fullmatch(step):
            more = 'fill-opacity="0.22" rx="3"'
            parts.append(rect(at[0] - 60, y - 11, at[-1] - at[0] + 120, 22, ORANGE, more))
            parts.append(text((at[0] + at[-1]) / 2, y + 4, found[1], more='font-size="12"'))
        else:
            raise ValueError(f"no step of a sequence diagram: {step!r}")
    return svg(width, bottom + 4, parts)


def noted(words: str) -> float:
    """How wide the box around words is."""
    return 7.2 * len(words) + 16


# -- what is where --------------------------------------------------------------------------------


def pencil_transpose() -> str:
    """A plane of four ranks' pencils before and after a transpose, and who sends what."""
    parts: list[str] = []
    size, cell = 200, 50
    for side, title in ((0, "whole along x, transformed along x"), (1, "whole along y")):
        left = 40 + side * 330
        parts.append(text(left + size / 2, 20, title))
        for i in range(4):
            for j in range(4):
                owner = j if side == 0 else i
                x, y = left + i * cell, 34 + j * cell
                mark = (i, j) == (2, 0)
                more = 'fill-opacity="0.55" stroke="currentColor" stroke-opacity="0.25"'
                parts.append(rect(x, y, cell, cell, COLOURS[owner], more))
                if mark:
                    parts.append(rect(x + 4, y + 4, cell - 8, cell - 8, "none",
                                      'stroke="currentColor" stroke-width="2"'))
        for k in range(4):
            if side == 0:
                parts.append(text(left - 8, 34 + k * cell + 30, str(k), "end"))
            else:
                parts.append(text(left + k * cell + 25, 34 + size + 18, str(k)))
        parts.append(text(left + size / 2, 34 + size + 36, "x to the right, y downwards"))
    parts.append(arrow(40 + 3 * cell, 34 + 25, 40 + 330 + 2 * cell, 34 + 25))
    parts.append(text(305, 140, "every rank sends"))
    parts.append(text(305, 157, "a block to every"))
    parts.append(text(305, 174, "other one"))
    return svg(610, 34 + size + 46, parts)


def matrix_halo() -> str:
    """The rows of four ranks, their own columns, the columns of others, and the halo."""
    parts: list[str] = []
    side = 4 * 48
    for rank in range(4):
        y = 30 + 48 * rank
        for other in range(4):
            fill = COLOURS[rank] if other == rank else "none"
            opacity = 'fill-opacity="0.4" stroke="currentColor" stroke-opacity="0.3"'
            parts.append(rect(60 + 48 * other, y, 48, 48, fill, opacity))
        parts.append(text(50, y + 29, f"rank {rank}", "end", 'font-size="12"'))
        parts.append(rect(60 + side + 50, y, 26, 48, COLOURS[rank], 'fill-opacity="0.4"'))
    ghosts = [(0, 1, 8, 30), (0, 1, 30, 12), (1, 0, 20, 10), (1, 2, 12, 25), (2, 1, 34, 20),
              (2, 3, 10, 14), (3, 2, 25, 30), (3, 0, 14, 36), (0, 3, 30, 24)]
    for row, column, dx, dy in ghosts:
        x, y = 60 + 48 * column + dx, 30 + 48 * row + dy
        parts.append(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{COLOURS[column]}"/>')
    parts.append(text(60 + side / 2, 20, "A"))
    parts.append(text(60 + side + 63, 20, "x"))
    left = 60 + side + 140
    parts.append(text(left + 120, 20, "what rank 0 multiplies with"))
    parts.append(rect(left, 40, 150, 26, COLOURS[0], 'fill-opacity="0.4"'))
    parts.append(text(left + 75, 57, "owned", more='font-size="12"'))
    for k, other in enumerate((1, 1, 3)):
        parts.append(rect(left + 150 + 26 * k, 40, 26, 26, COLOURS[other], 'fill-opacity="0.8"'))
    parts.append(text(left + 190, 84, "ghosts", more='font-size="12"'))
    parts.append(text(left, 128, "interior rows: multiplied", "start", 'font-size="12"'))
    parts.append(text(left, 144, "while the ghosts come", "start", 'font-size="12"'))
    parts.append(text(left, 176, "boundary rows: after them", "start", 'font-size="12"'))
    return svg(left + 250, 240, parts)


def binomial_tree() -> str:
    """Who passes data on to whom among eight ranks, in three steps."""
    at = {0: (300, 30), 4: (160, 90), 2: (330, 90), 1: (440, 90), 6: (100, 150), 5: (210, 150),
          3: (330, 150), 7: (100, 210)}
    edges = [(0, 4, 1), (0, 2, 2), (0, 1, 3), (4, 6, 2), (4, 5, 3), (2, 3, 3), (6, 7, 3)]
    parts = []
    for a, b, step in edges:
        (x1, y1), (x2, y2) = at[a], at[b]
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        parts.append(arrow(x1 + 16 * ux, y1 + 16 * uy, x2 - 16 * ux, y2 - 16 * uy))
        parts.append(text((x1 + x2) / 2 + 8, (y1 + y2) / 2, str(step), "start", 'font-size="11"'))
    for rank, (x, y) in at.items():
        parts.append(f'<circle cx="{x}" cy="{y}" r="15" fill="{BLUE}" fill-opacity="0.25" '
                     'stroke="currentColor"/>')
        parts.append(text(x, y + 5, str(rank)))
    parts.append(text(322, 34, "root", "start", 'font-size="12"'))
    return svg(520, 240, parts)


def two_slots() -> str:
    """The two receive slots of a pair, round by round."""
    parts = []
    for row, name in enumerate(("slot 0", "slot 1")):
        y = 34 + row * 44
        parts.append(text(62, y + 21, name, "end"))
        for k in range(4):
            x = 74 + 130 * k
            arriving = k % 2 == row
            fill = BLUE if arriving else GREEN
            words = f"round {k} arrives" if arriving else (f"round {k - 1} is yours" if k else "")
            if words:
                parts.append(rect(x, y, 124, 32, fill, 'fill-opacity="0.3" rx="4"'))
                parts.append(text(x + 62, y + 20, words, more='font-size="12"'))
    for k in range(4):
        parts.append(text(74 + 130 * k, 20, f"Start {k}", "start", 'font-size="12"'))
    return svg(610, 130, parts)


# -- pictures in files ----------------------------------------------------------------------------


def reading(name: str, row: str, column: str) -> float:
    """The first number of a cell of docs/results."""
    found = json.loads((DOCS / "results" / f"{name}.json").read_text(encoding="utf-8"))
    (cells,) = [each["measured"] for each in found["rows"] if each["name"] == row]
    return float(cells[found["columns"].index(column)].split("/")[0])


def speed(back: str = "") -> str:
    """How many times as fast as what people use today, from docs/results; MPICH, two ranks."""
    slots = "two slots (`recvbuf=None`)"
    hand = "one field over persistent sends by hand, packed"
    peer = "times as fast as mpi4py-fft"
    bars = [
        ("exchange of 1 KiB", "MPI_Alltoallv", 1 / reading("rounds-mpich", slots, "1 KiB")),
        ("exchange of 1 MiB", "MPI_Alltoallv", 1 / reading("rounds-mpich", slots, "1 MiB")),
        ("Allreduce of 1 KiB", "MPI_Allreduce", 1 / reading("collectives", "Allreduce", "1 KiB")),
        ("Bcast of a plain array of 1 MiB", "MPI_Bcast",
         1 / reading("collectives", "Bcast", "1 MiB")),
        ("ghosts of a grid of 128³", "persistent sends by hand", 1 / reading("halo", hand, "128³")),
        ("real FFT of 128³", "mpi4py-fft", reading("fft", peer, "real 128³")),
        ("real FFT of 256³", "mpi4py-fft", reading("fft", peer, "real 256³")),
        ("sparse product, grid of 64³", "PETSc",
         1 / reading("spmv", "27-point grid of 64³", "over PETSc")),
        ("sparse product, brack2", "PETSc", 1 / reading("spmv", "brack2", "over PETSc")),
    ]  # fmt: skip
    width, left, high = 460, 14, 36
    scale = (width - left - 44) / max(value for _, _, value in bars)
    parts = [text(left, 24, "Times as fast as what people use today", "start",
                  'font-size="15" font-weight="bold"')]
    for k, (what, other, value) in enumerate(bars):
        y = 42 + high * k
        parts.append(text(left, y + 11, f"{what}, over {other}", "start", 'font-size="12"'))
        parts.append(rect(left, y + 16, scale * value, 11, BLUE if value >= 1 else ORANGE, ""))
        parts.append(text(left + scale * value + 6, y + 26, f"{value:.1f}", "start"))
    bottom = 42 + high * len(bars)
    for k, words in enumerate(["Two ranks of one node, MPICH 5.0.2; medians, measured in turns.",
                               "The line is 1, as fast; a bar that ends before it is slower."]):
        parts.append(text(left, bottom + 14 + 16 * k, words, "start",
                          'font-size="11" fill-opacity="0.75"'))
    for k in range(len(bars)):  # beside the bars, not across the words
        y = 42 + high * k + 13
        parts.append(line(left + scale, y, left + scale, y + 17, 'stroke-dasharray="3 2"'))
    return svg(width, bottom + 42, parts, back)


def code_map() -> str:
    """The packages and what each room is for; arrows are imports."""
    rooms = [
        ("apps", "what a person runs: commands, mini-applications, benchmarks, the report",
         (30, 20, 640, 50), GREY),
        ("pencilfft", "pencils, transposes, kernels, plans, distributed arrays, HDF5",
         (30, 130, 305, 90), GREEN),
        ("sparse", "partitions, halos, matrices, solvers, preconditioners, files",
         (365, 130, 305, 90), ORANGE),
    ]  # fmt: skip
    parts = []
    for name, words, (x, y, w, h), colour in rooms:
        parts.append(rect(x, y, w, h, colour, 'fill-opacity="0.25" stroke="#222" rx="6"'))
        parts.append(text(x + w / 2, y + 22, name, more='font-weight="bold"'))
        half = len(words) > 50 and w < 400
        lines = [words] if not half else [words[: words.rfind(",", 0, 44) + 1],
                                          words[words.rfind(",", 0, 44) + 2 :]]
        for k, each in enumerate(lines):
            parts.append(text(x + w / 2, y + 42 + 17 * k, each, more='font-size="12"'))
    parts.append(rect(30, 280, 640, 150, BLUE, 'fill-opacity="0.2" stroke="#222" rx="6"'))
    parts.append(text(350, 302, "collectives", more='font-weight="bold"'))
    inner = [("request, progress", "verbs, states, who drives MPI"),
             ("registry, tuning", "methods by name; auto"),
             ("transports, trees, folds", "one file per method"),
             ("partitioned, halo", "pieces of messages; grids"),
             ("program, core/*.c", "rounds as steps, run in C"),
             ("memory, context", "windows, who owns what")]
    for k, (name, words) in enumerate(inner):
        x, y = 44 + 208 * (k % 3), 314 + 56 * (k // 3)
        parts.append(rect(x, y, 198, 48, "#ffffff", 'stroke="#222" stroke-opacity="0.5" rx="4"'))
        parts.append(text(x + 99, y + 20, name, more='font-size="12"'))
        parts.append(text(x + 99, y + 37, words, more='font-size="11" fill="#555"'))
    parts += [arrow(180, 70, 180, 128), arrow(520, 70, 520, 128)]
    parts += [arrow(180, 220, 180, 278), arrow(520, 220, 520, 278), arrow(350, 70, 350, 278)]
    parts += [arrow(350, 430, 350, 462), text(350, 480, "mpi4py, NumPy")]
    return svg(700, 494, parts, "#ffffff")


FILES = {"speed.svg": lambda: speed("#ffffff"), "map.svg": code_map}

if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for name, draw in FILES.items():
        (PICTURES / name).write_text(draw() + "\n", encoding="utf-8")
