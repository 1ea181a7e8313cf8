"""A few virtual nodes on this machine, for tests of what happens between nodes.

    python tests/cluster.py run --nodes 2 --ppn 2 -- python -m mpi4py program.py
    python tests/cluster.py run --nodes 2 --plain -- ssh node1 hostname

Each node has a host name, a network address, process numbers and a /dev/shm of its own, so that
nothing but TCP connects two of them; the file system is shared. The nodes live inside the
namespaces of a head, on which mpiexec runs, and the head ends with this program: then the kernel
takes back all processes, links and mounts. Needs root, or a kernel that lets users make user
namespaces, and iproute2 and util-linux. ``--delay`` and ``--rate`` need a kernel with netem.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import wire

NEW_NS, NEW_UTS, NEW_IPC = 0x00020000, 0x04000000, 0x08000000
NEW_USER, NEW_PID, NEW_NET = 0x10000000, 0x20000000, 0x40000000
NODE_SPACES = NEW_NS | NEW_UTS | NEW_IPC | NEW_PID | NEW_NET
PR_SET_PDEATHSIG = 1
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
SUBNET = "10.88.0"
HEAD = 254

REMOTE_SHELL = """#!/bin/sh
# ssh for virtual nodes: [OPTIONS] NODE WORDS... runs the words inside the node
while [ "${1#-}" != "$1" ]; do shift; done
node=$1; shift
target=$(cat FOLDER/$node.pid) || exit 255
here=$(pwd)
exec nsenter -t "$target" -m -u -i -n -p -- /bin/sh -c "cd '$here' && $*"
"""


class ClusterError(Exception):
    """Virtual nodes cannot be made here; the text says why."""


def shell(script: str) -> None:
    """Run lines of shell; an error of one becomes ours, with its words."""
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=False)
    if done.returncode:
        words = done.stderr.strip().splitlines()
        raise ClusterError(words[-1] if words else f"{script!r} failed")


def spawn(body: Callable[[], int], spaces: int, pid_file: Path, log: Path) -> int:
    """Fork a keeper, and from it ``body`` as the first process of new namespaces.

    Returns the keeper. The body ends with the keeper and the keeper with its parent; ``pid_file``
    gets the number of the body, ``log`` why it could not begin.
    """
    keeper = os.fork()
    if keeper:
        return keeper
    status = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        uid, gid = os.getuid(), os.getgid()
        if libc.unshare(spaces):
            raise ClusterError(f"no new namespaces: {os.strerror(ctypes.get_errno())}")
        if spaces & NEW_USER:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        ready, go = os.pipe()
        first = os.fork()
        if first == 0:
            os.close(go)
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            for number in STOPPING:
                signal.signal(number, signal.SIG_DFL)
            if os.read(ready, 1):  # else the keeper is gone already
                status = body()
        else:
            pid_file.with_suffix(".new").write_text(str(first))
            pid_file.with_suffix(".new").rename(pid_file)
            os.write(go, b"!")
            _, code = os.waitpid(first, 0)
            status = os.waitstatus_to_exitcode(code)
            status = 128 - status if status < 0 else status
    except (ClusterError, OSError) as error:
        log.write_text(str(error))
    finally:
        sys.stdout.flush()
        os._exit(status)
    return 0


def furnish(name: str, folder: Path) -> None:
    """Make a machine of the new namespaces this process is in: name, mounts, loopback."""
    private = folder / "private"
    shell(f"""
        mount --make-rprivate /
        mount -t proc proc /proc
        mount -t sysfs sysfs /sys
        mount -t tmpfs -o size=1g,mode=1777 tmpfs /dev/shm
        mount -t tmpfs tmpfs {private}
        mount --bind {folder}/hosts /etc/hosts
        hostname {name} 2>/dev/null || echo {name} > /proc/sys/kernel/hostname
        ip link set lo up
    """)
    for setting, value in (
        ("net/ipv6/conf/all/disable_ipv6", "1"),
        ("net/ipv4/tcp_congestion_control", "reno"),
    ):
        try:
            Path("/proc/sys", setting).write_text(value)
        except OSError:
            continue  # a matter of speed alone


def node(name: str, folder: Path) -> int:
    """The first process of a node: furnish it, then bury its orphans for as long as it lives."""
    furnish(name, folder)
    (folder / f"{name}.up").touch()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.1)


def start_nodes(count: int, folder: Path) -> list[int]:
    """Start the nodes; the numbers, seen from here, of their first processes."""
    names = [f"node{index}" for index in range(count)]
    for name in names:
        spawn(
            lambda name=name: node(name, folder),  # type: ignore[misc]
            NODE_SPACES,
            folder / f"{name}.pid",
            folder / "log",
        )
    limit = time.monotonic() + 20
    while not all((folder / f"{name}.up").exists() for name in names):
        log = folder / "log"
        if log.exists() and log.read_text():
            raise ClusterError(log.read_text())
        if time.monotonic() > limit:
            raise ClusterError("a virtual node does not come up")
        time.sleep(0.01)
    return [int((folder / f"{name}.pid").read_text()) for name in names]


def lay_wires(pids: list[int], delay: str, rate: str) -> None:
    """Join head and nodes by a network; shape the way into every node as asked."""
    if (delay or rate) and not has_netem():
        lay_slow_wires(pids, delay, rate)
        return
    shell(f"""
        ip link add wire type bridge
        ip address add {SUBNET}.{HEAD}/24 dev wire
        ip link set wire up
    """)
    for index, pid in enumerate(pids):
        shell(f"""
            ip link add port{index} type veth peer name eth0 netns {pid}
            ip link set port{index} master wire up
            nsenter -t {pid} -n ip address add {SUBNET}.{index + 1}/24 dev eth0
            nsenter -t {pid} -n ip link set eth0 up
        """)
        if delay or rate:
            shape = (f"delay {delay} " if delay else "") + (f"rate {rate}" if rate else "")
            shell(f"tc qdisc add dev port{index} root netem limit 100000 {shape}")


def has_netem() -> bool:
    """Whether the kernel can shape a link; tried on the loopback of this namespace."""
    try:
        shell("tc qdisc add dev lo root netem delay 1ms && tc qdisc del dev lo root")
    except ClusterError:
        return False
    return True


def lay_slow_wires(pids: list[int], delay: str, rate: str) -> None:
    """Join head and nodes by a process that passes frames on as slowly as asked."""
    descriptors = {}
    try:
        seconds = wire.quantity(delay, wire.TIMES) if delay else 0.0
        bits = wire.quantity(rate, wire.RATES) if rate else 0.0
        for host, pid in [*enumerate(pids, 1), (HEAD, os.getpid())]:
            descriptors[host] = wire.tap(f"port{host}")
            shell(f"""
                ip link set port{host} netns {pid} name eth0
                nsenter -t {pid} -n sh -ec '
                    ip link set eth0 address {wire.ADDRESS.format(host)} txqueuelen 10000
                    ip address add {SUBNET}.{host}/24 dev eth0
                    ip link set eth0 up'
            """)
    except (ClusterError, OSError, ValueError) as error:
        raise ClusterError(f"the wire cannot be shaped here: {error}") from error
    if os.fork() == 0:
        wire.Switch(descriptors, seconds, bits).run()
    for descriptor in descriptors.values():
        os.close(descriptor)


def job(arguments: argparse.Namespace, folder: Path) -> list[str]:
    """The command line of the head: the program itself, or mpiexec with the nodes."""
    words: list[str] = arguments.command
    if arguments.plain:
        return words
    launcher = shutil.which("mpiexec")
    if not launcher:
        raise ClusterError("no mpiexec on PATH")
    os.environ.setdefault("UCX_NET_DEVICES", "eth0")
    version = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=True)
    ppn, shell_file = arguments.ppn, f"{folder}/ssh"
    total = ["-n", str(ppn * arguments.nodes)]
    names = [f"node{index}" for index in range(arguments.nodes)]
    if "Open MPI" not in version.stdout:
        where = ["-hosts", ",".join(names), "-ppn", str(ppn)]
        return [launcher, "-launcher", "ssh", "-launcher-exec", shell_file, *where, *total, *words]
    os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    os.environ.setdefault("OMPI_MCA_osc", "^ucx")
    # its daemons name their folders by process numbers, which the nodes have in common
    os.environ["PRTE_MCA_prte_tmpdir_base"] = f"{folder}/private"
    hosts = ",".join(f"{name}:{ppn}" for name in names)
    remote = ["--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", shell_file]
    place = ["--host", hosts, "--map-by", f"ppr:{ppn}:node:oversubscribe", "--bind-to", "none"]
    return [launcher, "--allow-run-as-root", *remote, *place, *total, *words]


def head(arguments: argparse.Namespace, folder: Path) -> int:
    """The first process of the head: build the cluster, run the job, give its exit code."""
    lines = ["127.0.0.1 localhost", f"{SUBNET}.{HEAD} head"]
    lines += [f"{SUBNET}.{index + 1} node{index}" for index in range(arguments.nodes)]
    (folder / "hosts").write_text("\n".join(lines) + "\n")
    (folder / "private").mkdir()
    remote = folder / "ssh"
    remote.write_text(REMOTE_SHELL.replace("FOLDER", shlex.quote(str(folder))))
    remote.chmod(0o755)
    furnish("head", folder)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    lay_wires(start_nodes(arguments.nodes, folder), arguments.delay, arguments.rate)
    code = subprocess.call(job(arguments, folder))
    return 128 - code if code < 0 else code


def run(arguments: argparse.Namespace) -> int:
    """Run one job on virtual nodes; 124 when its time is over."""
    missing = [tool for tool in ("ip", "nsenter", "mount") if not shutil.which(tool)]
    if missing:
        raise ClusterError(f"not installed: {', '.join(missing)}")

    def stop(number: int, _: object) -> None:
        raise SystemExit(124 if number == signal.SIGALRM else 128 + number)

    for number in STOPPING:
        signal.signal(number, stop)
    signal.setitimer(signal.ITIMER_REAL, arguments.timeout)
    folder = Path(tempfile.mkdtemp(prefix="onesided-nodes-", dir=arguments.folder))
    spaces = NODE_SPACES | (0 if os.geteuid() == 0 else NEW_USER)
    keeper = 0
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # until the keeper is known
        keeper = spawn(lambda: head(arguments, folder), spaces, folder / "head.pid", folder / "log")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        _, status = os.waitpid(keeper, 0)
        keeper = 0
        log = folder / "log"
        if log.exists():
            raise ClusterError(log.read_text())
        return os.waitstatus_to_exitcode(status)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if keeper:
            end(keeper, folder / "head.pid")
        shutil.rmtree(folder, ignore_errors=True)


def end(keeper: int, pid_file: Path) -> None:
    """Kill the head, and with it everything inside; return when it is gone."""
    limit = time.monotonic() + 5
    while not pid_file.exists() and time.monotonic() < limit:
        if os.waitpid(keeper, os.WNOHANG)[0]:
            return  # it ended before it had a head
        time.sleep(0.01)
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
    os.waitpid(keeper, 0)  # the keeper waits for the head, and the head for all inside


@functools.cache
def available() -> str:
    """Why virtual nodes cannot be made here; empty when they can (they have been)."""
    words = [sys.executable, __file__, "run", "--nodes", "2", "--plain", "--timeout", "30", "--"]
    done = subprocess.run(
        [*words, "ssh", "node1", "true"], capture_output=True, text=True, check=False
    )
    return (done.stderr.strip() or f"exit code {done.returncode}") if done.returncode else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="cluster.py", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    action = actions.add_parser("run", help="run a job on virtual nodes")
    action.add_argument("--nodes", type=int, default=2)
    action.add_argument("--ppn", type=int, default=1, help="ranks on each node")
    action.add_argument("--delay", default="", help="of a node's link, as tc writes it: 100us")
    action.add_argument("--rate", default="", help="of a node's link, as tc writes it: 1gbit")
    action.add_argument("--timeout", type=float, default=300.0, help="seconds; then 124")
    action.add_argument("--plain", action="store_true", help="run on the head, without mpiexec")
    action.add_argument("--folder", default=None, help="where to keep small files meanwhile")
    action.add_argument("command", nargs="+")
    try:
        return run(parser.parse_args())
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 125


if __name__ == "__main__":
    sys.exit(main())
