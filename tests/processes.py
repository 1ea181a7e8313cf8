"""The processes of one run, found by a token in their environment, and what they leave behind."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import time
from pathlib import Path

PROC = Path("/proc")
SHM = Path("/dev/shm")
TOPOLOGY = Path("/tmp/hydra_hwloc_xmlfile_*")
SEGMENT = re.compile(r"^(mpich_shm_|sm_segment|vader_segment|osc_sm|osc_rdma|ucx_shm_)")


def marked(token: str) -> list[int]:
    """Numbers of the living processes whose environment has this token."""
    found = []
    for folder in PROC.iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            if token.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue  # ended meanwhile, or another user's
    return found


def is_rank(pid: int) -> bool:
    """Whether the process is a Python that runs a rank and writes its stacks on SIGUSR1."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        status = (PROC / str(pid) / "status").read_text()
    except OSError:
        return False
    line = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    caught = int(line.split()[1], 16)
    return words[1:3] == [b"-m", b"mpi4py"] and bool(caught >> (signal.SIGUSR1 - 1) & 1)


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def write_stacks(token: str, folder: Path, patience: float = 5.0) -> None:
    """Ask every rank of the run for the stacks of its threads, and give it time to answer."""
    ranks = [pid for pid in marked(token) if is_rank(pid)]
    send(ranks, signal.SIGUSR1)
    limit = time.monotonic() + patience
    while time.monotonic() < limit:
        if sum(file.stat().st_size > 0 for file in folder.glob("stacks-*")) >= len(ranks):
            break
        time.sleep(0.05)
    time.sleep(0.2)


def end(token: str, launcher: int, patience: float = 2.0) -> None:
    """End all processes of the run: the launcher politely, then whatever is left."""
    if launcher in marked(token):
        send([launcher], signal.SIGTERM)
        limit = time.monotonic() + patience
        while len(marked(token)) and time.monotonic() < limit:
            time.sleep(0.05)
    for _ in range(20):
        left = marked(token)
        if not left:
            break
        send(left, signal.SIGKILL)
        time.sleep(0.05)


def remove_topology(since: float) -> None:
    """Remove the machine descriptions that MPICH's launcher wrote after this time and left.

    Nothing is removed while another job is starting or running: they could be its own.
    """
    for folder in PROC.iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and "hydra_" in (folder / "comm").read_text():
                return
    for path in TOPOLOGY.parent.glob(TOPOLOGY.name):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime >= since:
                path.unlink()


def segments() -> set[Path]:
    """Shared-memory segments that an MPI library has made on this machine."""
    return {path for path in SHM.iterdir() if SEGMENT.match(path.name)} if SHM.is_dir() else set()


def _mapped() -> str:
    found = []
    for path in PROC.glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            lines = path.read_text(errors="replace").splitlines()
            found += [line for line in lines if "/dev/shm/" in line]
    return "\n".join(found)


def remove_segments(before: set[Path]) -> None:
    """Remove the segments that are new, older than a second and mapped by nobody."""
    new = segments() - before
    if not new:
        return
    time.sleep(1.0)
    maps = _mapped()
    for path in new:
        with contextlib.suppress(OSError):
            if str(path) not in maps and time.time() - path.stat().st_ctime >= 1.0:
                path.unlink()


@functools.cache
def unshared(size):
    """Words that run a command where /dev/shm has this size, or the reason why there are none."""
    mount = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"'
    words = ["unshare", "-m", "sh", "-c", mount, "sh"]
    try:
        done = subprocess.run([*words, "true"], capture_output=True, text=True, timeout=20,
                              check=False)
    except OSError as error:
        return [], f"no unshare: {error}"
    return (words, "") if done.returncode == 0 else ([], f"unshare: {done.stderr.strip()}")
