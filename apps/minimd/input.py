"""The input file of Mantevo's MiniMD (``in.lj.miniMD``): fixed lines, values first.

What follows the values of a line is a comment. The first two lines are comments altogether.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onesided.apps.failures import CommandError
from onesided.apps.minimd.problem import Problem

HEAD = 2  # lines before the first value
#: What a line has: a name for errors, and how its values are read.
Line = tuple[str, Sequence[Callable[[str], Any]]]
LINES: tuple[Line, ...] = (
    ("units", (str,)),
    ("data file", (str,)),
    ("force style", (str,)),
    ("epsilon and sigma", (float, float)),
    ("size of problem", (int, int, int)),
    ("timesteps", (int,)),
    ("timestep size", (float,)),
    ("initial temperature", (float,)),
    ("density", (float,)),
    ("steps between two neighbor lists", (int,)),
    ("force cutoff and skin", (float, float)),
    ("steps between two lines of output", (int,)),
)
FIXED = {"units": "lj", "data file": "none", "force style": "lj"}


def parse(text: str, name: str) -> Problem:
    """Local. The problem in a file called ``name``; :class:`CommandError` names a wrong line."""
    lines = text.splitlines()
    if len(lines) < HEAD + len(LINES):
        raise CommandError(f"{name}: {len(lines)} lines; MiniMD's input has {HEAD + len(LINES)}")
    found: dict[str, list[Any]] = {}
    for number, (line, (what, kinds)) in enumerate(
        zip(lines[HEAD:], LINES, strict=False), HEAD + 1
    ):
        where = f"{name}, line {number}"
        found[what] = _values(line, what, kinds, where)
        only = FIXED.get(what)
        if only is not None and found[what] != [only]:
            raise CommandError(f"{where}: {what} {found[what][0]!r}, only {only!r} is known")
    cells = found["size of problem"]
    cutoff, skin = found["force cutoff and skin"]
    epsilon, sigma = found["epsilon and sigma"]
    return Problem(
        cells=(cells[0], cells[1], cells[2]),
        steps=found["timesteps"][0],
        dt=found["timestep size"][0],
        temperature=found["initial temperature"][0],
        density=found["density"][0],
        every=found["steps between two neighbor lists"][0],
        cutoff=cutoff,
        skin=skin,
        thermo=found["steps between two lines of output"][0],
        epsilon=epsilon,
        sigma=sigma,
    )


def _values(
    line: str, what: str, kinds: Sequence[Callable[[str], Any]], where: str
) -> list[Any]:
    words = line.split()
    try:
        if len(words) < len(kinds):
            raise ValueError(line)
        return [kind(word) for kind, word in zip(kinds, words, strict=False)]
    except ValueError as error:
        raise CommandError(f"{where}: {line.strip()!r} is not {what}") from error
