"""A command inside a job, as a case runs it, and what it wrote."""

from __future__ import annotations

import json
import os
import tempfile

from onesided.apps.cli.main import build_parser


def run_command(comm, words):
    """Exit code of the command, and what it wrote as JSON, on every rank."""
    path = comm.bcast(_new_file() if comm.rank == 0 else None)
    options = build_parser().parse_args([*words.split(), "--json", path])
    code = options.command.run(comm, options)
    found = None
    if comm.rank == 0:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        os.unlink(path)
    return code, comm.bcast(found)


def _new_file():
    handle, path = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    return path
