"""Files with the parameters of a machine, as ``onesided bench model --json`` writes them."""

from __future__ import annotations

import json

from mpi4py import MPI

from onesided.apps.cli.failures import CommandError, words
from onesided.collectives import OnesidedError
from onesided.collectives.modelling.parameters import Parameters, of_record


def load(comm: MPI.Intracomm, path: str) -> Parameters:
    """Collective. Read by rank 0; :class:`CommandError` on all ranks for what is no such file."""
    parameters: Parameters | None = None
    trouble = ""
    if comm.rank == 0:
        parameters, trouble = _read(path)
    parameters, trouble = comm.bcast((parameters, trouble))
    if parameters is None:
        raise CommandError(trouble)
    return parameters


def _read(path: str) -> tuple[Parameters | None, str]:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if isinstance(content, dict) and isinstance(content.get("pattern"), dict):
            content = content["pattern"].get("parameters")  # the report of the benchmark
        return of_record(content), ""
    except OSError as error:
        return None, words(error)
    except (OnesidedError, ValueError) as error:  # JSON's errors and Unicode's are ValueErrors
        return None, f"{path}: {words(error)}"
