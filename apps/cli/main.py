"""The command ``onesided``: sub-commands, their options, and what happens when they fail."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from onesided.apps.cli import failures
from onesided.apps.cli.commands import COMMANDS, GROUPS, Command
from onesided.apps.cli.failures import CommandError, fail, stop, words
from onesided.apps.cli.launch import launch

DESCRIPTION = "Persistent collectives over one-sided MPI, and what is built on them."
EPILOG = "Run a command under mpiexec -n N, or let it start itself with --ranks N."


class Parser(argparse.ArgumentParser):
    """Speaks on rank 0 only, and leaves what happens after a mistake to the caller.

    The options of a command are added when it is chosen.
    """

    chosen: Command | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Local."""
        if self.chosen is not None:
            self.chosen.add_options(self)
            self.set_defaults(command=self.chosen)
            self.chosen = None
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see {self.prog} --help)")

    def _print_message(self, message: str, file: Any = None) -> None:
        if failures.early_rank() == 0:
            super()._print_message(message, file)


def build_parser() -> Parser:
    """Local. The parser of all commands; groups such as ``bench`` are commands of two words."""
    parser = Parser(prog="onesided", description=DESCRIPTION, epilog=EPILOG)
    top = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    groups: dict[str, argparse._SubParsersAction[Parser]] = {}
    for command in COMMANDS:
        group, _, name = command.name.rpartition(" ")
        if group and group not in groups:
            below = top.add_parser(group, help=GROUPS[group], description=GROUPS[group])
            groups[group] = below.add_subparsers(metavar="NAME", required=True, parser_class=Parser)
        place = groups[group] if group else top
        options = place.add_parser(name, help=command.summary, description=command.summary)
        options.chosen = command
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Local outside an MPI job, where ``--ranks`` starts one; collective inside.

    Returns the exit code: 0, 2 after a mistake in what the command was given, 130 after an
    interrupt, or the job's own.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        options = build_parser().parse_args(arguments)
        if options.ranks is not None and not failures.in_job():
            return launch(arguments, options.ranks)
        return run(options.command, options)
    except CommandError as error:
        return fail(error)
    except KeyboardInterrupt:
        return stop()


def run(command: Command, options: argparse.Namespace) -> int:
    """Collective. Run the command on the ranks of this job and return its exit code."""
    if not failures.in_job():  # one process needs no network, and UCX in Open MPI complains
        os.environ.setdefault("OMPI_MCA_osc", "^ucx")
    else:  # there is a rank per core: the threads of NumPy's libraries would be in the way
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise CommandError(f"MPI cannot be loaded: {words(error)}") from error
    from onesided.collectives import abort_on_exception

    abort_on_exception()
    comm = MPI.COMM_WORLD
    if options.ranks not in (None, comm.size):
        raise CommandError(f"--ranks {options.ranks} inside a job of {comm.size} ranks")
    code: int = import_module(command.module).run(comm, options)
    return code
