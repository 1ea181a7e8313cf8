"""What a program runs on, and where what was measured there is kept for later runs.

Measurements hold for one processor; what is kept of them, or reported, names it. They are kept in
small files of the user's cache. It stands here because ``auto`` and the FFT keep such files.
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import sys
from functools import cache
from pathlib import Path
from typing import Any

from mpi4py import MPI


@cache
def processor() -> str:
    """Local. The processor's model, as the kernel names it; on ARM its implementer and parts."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    return named_in(text) or platform.processor() or platform.machine()


def named_in(cpuinfo: str) -> str:
    """Local. The processor that the text of /proc/cpuinfo names; empty where it names none."""
    named = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    if named:
        return named.group(1).strip()
    maker = re.search(r"^CPU implementer\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
    parts = re.findall(r"^CPU part\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
    if not maker or not parts:
        return ""
    return f"ARM implementer {maker.group(1)}, part {' and '.join(sorted(set(parts)))}"


def usable_cores() -> set[int]:
    """Local. The cores that this process may use; all there are where the system does not tell."""
    if sys.platform == "linux":
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def network() -> str:
    """Local. The device between nodes that the MPI was built with, empty where it does not say."""
    device = re.search(r"^MPICH Device:\s*(.+)$", MPI.Get_library_version(), re.MULTILINE)
    return device.group(1).strip("\x00 ") if device else ""


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

    The order of what is in it is kept. Raises :class:`OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # not by tempfile, which lets nobody else read it
    name = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with open(name, "x", encoding="utf-8") as file:
            file.write(json.dumps(content))  # at once, and without indent: that is compiled
        os.replace(name, path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise
