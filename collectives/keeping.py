"""Small files in the user's cache in which decisions are kept for later runs."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

OFF = "off"


def kept_file(variable: str, name: str) -> Path | None:
    """Local. The file that the environment variable names; None where it says "off".

    Without the variable: ``onesided/NAME`` in the user's cache directory, None where there is no
    such directory.
    """
    named = os.environ.get(variable, "")
    if named == OFF:
        return None
    if named:
        return Path(named).absolute()
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        return None
    return caches.absolute() / "onesided" / name


def replace_file(path: Path, content: Any) -> None:
    """Local. Write JSON, the file as a whole: a reader never sees half of it.

    Raises :class:`OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, sort_keys=True)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
