"""The command ``onesided``: sub-commands, their options, and what happens when they fail."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from onesided.apps.cli import failures
from onesided.apps.cli.commands import COMMANDS, GROUPS, Command
from onesided.apps.cli.failures import CommandError, fail, stop, words
from onesided.apps.cli.options import Options, Parser

DESCRIPTION = "Persistent collectives over one-sided MPI, and what is built on them."
EPILOG = "Run a command under mpiexec -n N, or let it start itself with --ranks N."
SHELLS = ("bash", "zsh", "fish")
COMPLETING = "_ARGCOMPLETE"  # the variable that argcomplete's scripts set


class _Version(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        _mpi()
        from onesided.apps.cli.machine import version_lines

        parser._print_message(version_lines(), sys.stdout)
        parser.exit()


class _Completion(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        try:
            from argcomplete import shellcode
        except ImportError as error:
            why = "--print-completion needs argcomplete (the extra completion)"
            raise CommandError(why) from error
        parser._print_message(shellcode([parser.prog], shell=values) + "\n", sys.stdout)
        parser.exit()


def build_parser() -> Parser:
    """Local. The parser of all commands; groups such as ``bench`` are commands of two words."""
    parser = Parser(prog="onesided", description=DESCRIPTION, epilog=EPILOG)
    add = parser.add_argument
    add("--version", action=_Version, nargs=0, default=argparse.SUPPRESS,
        help="versions of this, of MPI, mpi4py and NumPy")
    add("--print-completion", action=_Completion, choices=SHELLS, default=argparse.SUPPRESS,
        help='completion for a shell: eval "$(onesided --print-completion bash)"')
    top = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    groups: dict[str, argparse._SubParsersAction[Parser]] = {}
    for command in COMMANDS:
        group, _, name = command.name.rpartition(" ")
        if group and group not in groups:
            below = top.add_parser(group, help=GROUPS[group], description=GROUPS[group])
            groups[group] = below.add_subparsers(metavar="NAME", required=True, parser_class=Parser)
        place = groups[group] if group else top
        options = place.add_parser(name, description=command.summary, help=command.summary)
        options.chosen = command
    return parser


def parsers(parser: argparse.ArgumentParser | None = None) -> Iterator[Parser]:
    """Local. Those of all commands, with their options, as help lists them."""
    for action in (parser or build_parser())._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                if below.chosen is None:
                    yield from parsers(below)
                else:
                    below.complete()
                    yield below


def complete_parser() -> Parser:
    """Local. The parser of all commands, each with its options."""
    parser = build_parser()
    for _ in parsers(parser):
        pass  # it has its options now
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Local outside an MPI job, where ``--ranks`` starts one; collective inside.

    Returns the exit code: 0, 2 after a mistake in what the command was given, 130 after an
    interrupt, or the job's own.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if COMPLETING in os.environ:
        _complete()
    try:
        options = build_parser().parse_args(arguments)
        command = options.command
        if command.starts_jobs and failures.in_job():
            raise CommandError(
                f"{command.name} starts its own jobs: run it without mpiexec, with --ranks N"
            )
        if options.ranks is not None and not failures.in_job() and not command.starts_jobs:
            from onesided.apps.cli.launch import launch, launch_by_cases

            if command.by_cases:
                return launch_by_cases(arguments, options)
            return launch(arguments, options.ranks)
        return run(command, options)
    except CommandError as error:
        return fail(error)
    except KeyboardInterrupt:
        return stop()
    except Exception as error:
        library = sys.modules.get("onesided.collectives")  # where it raised it, it is imported
        if library is None or not isinstance(error, library.OnesidedError):
            raise
        return fail(CommandError(words(error)))


def _complete() -> None:
    """Local. Answer what a shell asks for, and leave; nothing without argcomplete."""
    try:
        from argcomplete import autocomplete
    except ImportError:
        return
    autocomplete(complete_parser())


def _mpi() -> Any:
    """Local. The module, which starts MPI."""
    if not failures.in_job():  # one process needs no network, and UCX in Open MPI complains
        os.environ.setdefault("OMPI_MCA_osc", "^ucx")
    else:  # there is a rank per core: the threads of NumPy's libraries would be in the way
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise CommandError(
            f"MPI cannot be loaded: {words(error)} (install one: pip install mpich; for the MPI of "
            "this machine: pip install --no-binary mpi4py mpi4py)"
        ) from error
    return MPI


def run(command: Command, options: Options) -> int:
    """Collective. Run the command on the ranks of this job and return its exit code."""
    comm = _mpi().COMM_WORLD
    from onesided.apps.cli import machine
    from onesided.apps.cli.files import check_files
    from onesided.collectives import abort_on_exception

    abort_on_exception()
    failures.meet(comm)
    machine.circumstances(comm, now=True)
    if options.ranks not in (None, comm.size) and not command.starts_jobs:
        raise CommandError(f"--ranks {options.ranks} inside a job of {comm.size} ranks")
    check_files(comm, options)
    code = command.run(comm, options)
    failures.part()
    return code
