"""The language of options: what several commands can be given, written once, and its types.

A command picks from :data:`OPTIONS` with :func:`take`, and says no more than what is its own about
it. argparse reads them; nothing heavy is imported here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

from onesided.apps.cli import failures
from onesided.apps.cli.failures import CommandError

if TYPE_CHECKING:
    from onesided.apps.cli.commands import Command

KIBI = 1024
SUFFIXES = {"K": KIBI, "M": KIBI**2, "G": KIBI**3}
FIGURES = "the figures that the report has of it; several are FILE-1, FILE-2 and so on"
SIZES = "1K 8K 32K 128K 1M 2M 16M"
ALL = "all"


# -- types ----------------------------------------------------------------------------------------


class FileName(str):
    """A file that is written; that it can be is seen before the work."""


class InputFile(str):
    """A file that is read; results tell its name, and no folder."""


class Picture(FileName):
    """An image that is written; the end of its name says of which kind."""


class FolderName(str):
    """A folder that is made where it is not there, for results."""


def _number(kind: type[int] | type[float], what: str, *, zero: bool) -> Callable[[str], Any]:
    """Reads a finite number above zero, or ``zero`` as well."""

    def read(text: str) -> Any:
        try:
            number = kind(text)
        except ValueError:
            number = -1
        if not 0 <= number < float("inf") or (number == 0 and not zero):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return number

    return read


positive = _number(int, "a whole number above zero", zero=False)
whole = _number(int, "a whole number of zero or above", zero=True)
seconds = _number(float, "a time in seconds above zero", zero=False)
above_zero = _number(float, "a number above zero", zero=False)
not_negative = _number(float, "a number of zero or above", zero=True)


def size(text: str) -> int:
    """Local. A number of bytes, with K, M or G for powers of 1024: ``32K``."""
    factor = SUFFIXES.get(text[-1:].upper(), 1)
    return factor * int(positive(text[:-1] if factor > 1 else text))


def grid_entry(text: str) -> int | str:
    return text if text == "auto" else int(positive(text))


def info_entry(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, value


def doubling(first: int, last: int) -> list[int]:
    """Local. The first number and its doubles below the last, and that itself."""
    counts = []
    while first < last:
        counts.append(first)
        first *= 2
    return [*counts, last]


# -- the options that mean the same in every command ----------------------------------------------


class Option(NamedTuple):
    """``meaning`` begins its help in every command; without ``type`` it is on or off."""

    meaning: str
    metavar: str = ""
    type: Callable[[str], Any] | None = None
    many: bool = False
    choices: Sequence[str] = ()
    short: str = ""
    action: str = ""


OPTIONS: Mapping[str, Option] = {
    # the problem
    "shape": Option("size of the problem along every axis", "N", positive, many=True),
    "sizes": Option("bytes", "BYTES", size, many=True),
    "dtype": Option("type of the numbers", type=str,
                    choices=("float32", "float64", "complex64", "complex128")),
    "grid": Option("process grid, e.g. 4 (slabs) or 2 2 (pencils)", "N", grid_entry, many=True),
    "boundary": Option("one for all axes, or one per axis", "NAME", str, many=True),
    "levels": Option("number of grids, each with half the points of the next along an axis", "N",
                     positive),
    "partition": Option("rows in their order, METIS's parts, or reverse Cuthill-McKee order",
                        type=str, choices=("rows", "metis", "rcm")),
    "matrices": Option("files with matrices", "FILE", InputFile, many=True),
    "mesh": Option("rows of a generated mesh like hugetrace; 0 for none", "N", whole),
    "patterns": Option("patterns to measure", type=str, many=True),
    "orders": Option("orders to measure", type=str, many=True),
    "threads": Option("threads of every rank", "N", positive),
    "seed": Option("of what is random", "N", whole),
    "scaling": Option(
        "weak: the problem grows with the ranks; strong: it is the same on all numbers of ranks",
        type=str, many=True, choices=("weak", "strong"),
    ),
    # its solution
    "steps": Option("time steps", "N", positive),
    "dt": Option("time step", "T", above_zero),
    "print-every": Option("steps between two lines of output", "N", positive),
    "rtol": Option("relative tolerance of the residual", "R", not_negative),
    "atol": Option("absolute tolerance", "R", not_negative),
    "maxiter": Option("iterations that a solution may take", "N", positive),
    "backend": Option("kernel of the local transforms", "NAME", str),
    "effort": Option("measure may find faster kernels, estimate repeats a run bit for bit",
                     type=str, choices=("estimate", "measure")),
    "verify": Option("compare the result with what is known or computed otherwise"),
    # how it is measured
    "comm": Option("method, several with commas, or all; onesided doctor lists them", "METHOD",
                   str),
    "memory": Option("where is received", type=str),
    "ranks": Option("start on N ranks with the installed mpiexec", "N", positive),
    "ranks-list": Option("numbers of ranks to compare", "N", positive, many=True),
    "iterations": Option("timed iterations of every method", "N", positive),
    "repeats": Option("runs of every method", "N", positive),
    "seconds": Option("measure no longer than about S seconds, with fewer iterations", "S",
                      seconds),
    "limit": Option("end what takes longer than S seconds", "S", seconds),
    "quick": Option("small and short"),
    "info": Option("hint for the methods, e.g. ranks_per_node=2 to emulate nodes; may be repeated",
                   "KEY=VALUE", info_entry, action="append"),
    # what is told of it
    "output": Option("write what is made to this path", "PATH", FileName, short="-o"),
    "afresh": Option("forget what is known from before"),
    "checkpoint": Option("write the state at the end to an HDF5 FILE", "FILE", FileName),
    "save-every": Option("and also after every N steps", "N", positive),
    "restart": Option("go on from a FILE", "FILE", InputFile),
    "json": Option("write the results to a JSON FILE", "FILE", FileName),
    "picture": Option("draw into an image FILE", "FILE", Picture),
    "format": Option(
        "print the rows as a table, as columns for awk in the way of OSU's benchmarks, as CSV or "
        "as Markdown", type=str, choices=("table", "columns", "csv", "markdown"),
    ),
}  # fmt: skip


class Options(argparse.Namespace):
    """What a command was given; of the options of :data:`OPTIONS` those that it takes.

    What has a value here need not be taken.
    """

    command: Command
    ranks: Any = None  # a number; None where a launcher knows
    info: Sequence[tuple[str, str]] = ()
    json: str | None = None
    picture: Picture | None = None
    format: str = "table"
    limit: float = float("inf")

    def but(self, **changed: Any) -> Self:
        return type(self)(**(vars(self) | changed))

    @property
    def process_grid(self) -> Any:
        """Local. The extents of the process grid, ``auto`` among them; None where all are."""
        return None if self.grid == ["auto"] else tuple(self.grid)

    def settings(self) -> dict[str, object]:
        """Local. What the command was given, for its report; nothing about where it writes."""
        left_out = "command", "format", "json", "output", "picture", "ranks", "restart"
        given = {
            name: _named(value)
            for name, value in vars(self).items()
            if name not in left_out and not isinstance(value, (FileName, FolderName))
        }
        return given | {"info": dict(self.info)}

    def inputs(self) -> list[Path]:
        """Local. The files that are read, without folders and pipes."""
        given = [each for value in vars(self).values()
                 for each in (value if isinstance(value, list) else [value])]  # fmt: skip
        paths = [Path(each) for each in given if isinstance(each, InputFile)]
        return [path for path in paths if path.is_file()]


def _named(value: Any) -> Any:
    """Local. Of files that are read the names."""
    if isinstance(value, list):
        return [_named(each) for each in value]
    return value.rpartition("/")[2] if isinstance(value, InputFile) else value


class Several(argparse.Action):
    """Names out of choices, ``all`` for every one of them."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        known = [each for each in self.choices or () if each != ALL]
        setattr(namespace, self.dest, known if ALL in values else values)


class Parser(argparse.ArgumentParser):
    """Speaks on rank 0 only, and leaves what happens after a mistake to the caller.

    The options of a command are added when it is chosen.
    """

    chosen: Command | None = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.allow_abbrev = False  # an option is written one way

    def complete(self) -> None:
        """Local. Add the options of the command that this parser is for."""
        if self.chosen is not None:
            self.chosen.add_options(self)
            self.set_defaults(command=self.chosen)
            self.chosen = None

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        return Options(**vars(super().parse_args(args, namespace)))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.complete()
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see {self.prog} --help)")

    def _print_message(self, message: str, file: Any = None) -> None:
        if failures.early_rank() == 0:
            super()._print_message(message, file)


def take(
    parser: Any, name: str, default: str | None = None, note: str = "", *, said: str = "",
    **own: Any,
) -> None:
    """Local. Give a command, or a group of its options, one of :data:`OPTIONS`.

    ``default``: as a user would write it, with blanks between several; ``all`` of the choices.
    ``said``: in words what the default is, where it is no value. ``note`` follows the meaning.
    ``own``: fields of :class:`Option` that differ here; ``required``.
    """
    required = {"required": True} if own.pop("required", False) else {}
    option = OPTIONS[name]._replace(**own)
    text = option.meaning + (f": {note}" if note else "")
    if said or default is not None:
        text += f" (default {said or default})"
    flags = [*([option.short] if option.short else []), f"--{name}"]
    if option.type is None:
        parser.add_argument(*flags, action="store_true", help=text)
        return
    own = {"metavar": option.metavar, "choices": option.choices, "action": option.action,
           "nargs": "+" if option.many else ""}  # fmt: skip
    given = {"help": text, **required, **{key: value for key, value in own.items() if value}}
    if option.many and option.choices:
        given |= {"choices": [*option.choices, ALL], "action": Several}
    given["default"] = [] if option.action == "append" else _value(option, default)
    parser.add_argument(*flags, type=option.type, **given)


def _value(option: Option, text: str | None) -> Any:
    """Local. What a user would have given with these words."""
    if text is None or option.type is None:
        return None
    if option.many and text == ALL and option.choices:
        return list(option.choices)
    values = [option.type(word) for word in (text.split() if option.many else [text])]
    return values if option.many else values[0]


def run_options(parser: Any, comm: str | None, info: bool = True, rows: bool = True) -> None:
    """Local. What every command that runs on ranks takes; ``comm``: the default of ``--comm``;
    ``info``: it makes requests that take hints; ``rows``: it prints rows of a report."""
    if comm is not None:
        take(parser, "comm", comm)
    for name in ("ranks", "info", "json") if info else ("ranks", "json"):
        take(parser, name)
    if rows:
        take(parser, "format", "table")


def timed(parser: Any, iterations: str, seconds: str = "120", figures: str = FIGURES) -> None:
    """Local. How often and how long a command measures, and what it draws of that, if anything."""
    take(parser, "iterations", iterations)
    take(parser, "seconds", seconds)
    if figures:
        take(parser, "picture", note=figures)


def edge(options: Options) -> int:
    """Local. Of a cube; :class:`.CommandError` for a ``--shape`` that is none."""
    if len(set(options.shape)) > 1:
        shape = " ".join(map(str, options.shape))
        raise CommandError(f"--shape {shape}: this is a cube, with one number of points")
    return int(options.shape[0])


def box(shape: Sequence[int]) -> tuple[int, int, int]:
    """Local. One number of a ``--shape`` for a cube, or three; :class:`.CommandError`."""
    if len(shape) not in (1, 3):
        raise CommandError(f"--shape {' '.join(map(str, shape))}: one number for a cube, or three")
    a, b, c = shape if len(shape) == 3 else 3 * list(shape)
    return a, b, c

