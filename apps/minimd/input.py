"""The input file of Mantevo's MiniMD (``in.lj.miniMD``): fixed lines, values first.

What follows the values of a line is a comment. The first two lines are comments altogether. Files
of earlier versions lack the line with epsilon and sigma, which are 1 then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onesided.apps.failures import CommandError
from onesided.apps.minimd.problem import Problem

LATER, SIZE = "epsilon and sigma", "size of problem"
HEAD = 2  # lines before the first value
#: What a line has: a name for errors, and how its values are read.
Line = tuple[str, Sequence[Callable[[str], Any]]]
LINES: tuple[Line, ...] = (
    ("units", (str,)),
    ("data file", (str,)),
    ("force style", (str,)),
    (LATER, (float, float)),
    (SIZE, (int, int, int)),
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
    form = _form(lines)
    if len(lines) < HEAD + len(form):
        raise CommandError(f"{name}: {len(lines)} lines; MiniMD's input has {HEAD + len(form)}")
    found: dict[str, list[Any]] = {LATER: [1.0, 1.0]}
    for number, (line, (what, kinds)) in enumerate(
        zip(lines[HEAD:], form, strict=False), HEAD + 1
    ):
        where = f"{name}, line {number}"
        found[what] = _values(line, what, kinds, where)
        only = FIXED.get(what)
        if only is not None and found[what] != [only]:
            raise CommandError(f"{where}: {what} {found[what][0]!r}, only {only!r} is known")
    cells = found[SIZE]
    cutoff, skin = found["force cutoff and skin"]
    epsilon, sigma = found[LATER]
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


def _form(lines: Sequence[str]) -> Sequence[Line]:
    """Local. The lines that a file has: in earlier versions the size stands in place of epsilon."""
    place = HEAD + [what for what, _ in LINES].index(LATER)
    words = lines[place].split()[:3] if len(lines) > place else []
    if len(words) == 3 and all(word.isdecimal() for word in words):
        return [line for line in LINES if line[0] != LATER]
    return LINES


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
