"""The parameters of this machine, kept in a file for programs that estimate."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

from onesided.collectives.errors import PatternError
from onesided.collectives.keeping import kept_file, replace_file
from onesided.collectives.modelling.networks import NETWORKS
from onesided.collectives.modelling.parameters import Parameters, of_record

#: Environment variable with the file to use in place of the default one, or "off".
VARIABLE = "ONESIDED_MODEL"

#: What is assumed of a machine that nobody has measured.
ASSUMED = NETWORKS["infiniband"]


def parameters_file() -> Path | None:
    """Local. The file that ``ONESIDED_MODEL`` names, None if that is "off" or there is no home.

    Without the variable: ``onesided/model.json`` in the user's cache directory.
    """
    return kept_file(VARIABLE, "model.json")


def known_parameters() -> Parameters:
    """Local. What was measured on this machine, :data:`ASSUMED` where nothing was.

    A file that is something else is ignored with a warning.
    """
    path = parameters_file()
    if path is None:
        return ASSUMED
    try:
        return of_record(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return ASSUMED
    except (OSError, ValueError, PatternError) as error:
        warnings.warn(f"{path} is ignored: {error}", RuntimeWarning, stacklevel=2)
        return ASSUMED


def keep_parameters(parameters: Parameters) -> Path | None:
    """Local. Keep what was measured for later programs; returns the file, None if that is off.

    Raises :class:`OSError` where it cannot be written.
    """
    path = parameters_file()
    if path is not None:
        replace_file(path, parameters.record())
    return path
