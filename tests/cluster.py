"""A few virtual nodes on this machine, for tests of what happens between nodes.

    python tests/cluster.py run --nodes 2 --ppn 2 -- python -m mpi4py program.py
    python tests/cluster.py run --nodes 2 --plain -- ssh node1 hostname

Each node has a host name, a network address, process numbers and a /dev/shm of its own, so that
nothing but TCP connects two of them; the file system is shared. The nodes live inside the
namespaces of a head, on which mpiexec runs, and the head ends with this program: then the kernel
takes back all processes, links and mounts. Needs root, or a kernel that lets users make user
namespaces, and iproute2 and util-linux. ``--delay`` and ``--rate`` need a kernel with netem, or one
that lets this program shape the wire itself.
"""

from __future__ import annotations

import argparse
import functools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import mpi_harness
import wire

UNSHARE = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--net", "--fork", "--kill-child"]
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
SUBNET = "10.88.0"
HEAD = 254

REMOTE_SHELL = """#!/bin/sh
# ssh for virtual nodes: [OPTIONS] NODE WORDS... runs the words inside the node
while [ "${1#-}" != "$1" ]; do shift; done
node=$1; shift
at=$(cat FOLDER/$node.pid) || exit 255
here=$(pwd)
exec nsenter -t "$at" -m -u -i -n --pid=/proc/$at/ns/pid_for_children -- \\
    /bin/sh -c "cd '$here' && $*"
"""


class ClusterError(Exception):
    """Virtual nodes cannot be made here; the text says why."""


def shell(script: str) -> None:
    """Run lines of shell; an error of one becomes ours, with its words."""
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=False)
    if done.returncode:
        words = done.stderr.strip().splitlines()
        raise ClusterError(words[-1] if words else f"{script!r} failed")


def apart(*words: str) -> subprocess.Popen[bytes]:
    """A program as the first process of new namespaces, which end with it, and it with us."""
    user = ["--map-root-user"] if os.geteuid() else []
    die = functools.partial(mpi_harness.die_with_parent, signal.SIGKILL)  # it passes over others
    return subprocess.Popen([*UNSHARE, *user, *words], preexec_fn=die)


def furnished(name: str, folder: Path) -> str:
    """Shell that makes a machine of new namespaces: name, mounts, loopback."""
    return f"""
        mount -t proc proc /proc
        mount -t sysfs sysfs /sys
        mount -t tmpfs -o size=1g,mode=1777 tmpfs /dev/shm
        mount -t tmpfs tmpfs {folder}/private
        mount --bind {folder}/hosts /etc/hosts
        hostname {name} 2>/dev/null || echo {name} > /proc/sys/kernel/hostname
        ip link set lo up
        # a matter of speed alone
        {{ echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; }} 2>/dev/null || true
        {{ echo reno > /proc/sys/net/ipv4/tcp_congestion_control; }} 2>/dev/null || true
    """


def start_nodes(count: int, folder: Path) -> list[int]:
    """Start the nodes; each is a shell that buries its orphans. The processes in their networks."""
    nodes = {}
    for name in (f"node{index}" for index in range(count)):
        script = f"{furnished(name, folder)}\ntouch {folder}/{name}.up\nwhile :; do sleep 1; done"
        nodes[name] = apart("sh", "-ec", script)
        (folder / f"{name}.pid").write_text(str(nodes[name].pid))
    limit = time.monotonic() + 20
    while not all((folder / f"{name}.up").exists() for name in nodes):
        if time.monotonic() > limit or any(node.poll() is not None for node in nodes.values()):
            raise ClusterError("a virtual node does not come up")
        time.sleep(0.01)
    return [node.pid for node in nodes.values()]


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


def head(arguments: argparse.Namespace) -> int:
    """The first process of the head: build the cluster, run the job, give its exit code."""
    folder = Path(arguments.folder)
    lines = ["127.0.0.1 localhost", f"{SUBNET}.{HEAD} head"]
    lines += [f"{SUBNET}.{index + 1} node{index}" for index in range(arguments.nodes)]
    (folder / "hosts").write_text("\n".join(lines) + "\n")
    (folder / "private").mkdir()
    remote = folder / "ssh"
    remote.write_text(REMOTE_SHELL.replace("FOLDER", shlex.quote(str(folder))))
    remote.chmod(0o755)
    shell(furnished("head", folder))
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    lay_wires(start_nodes(arguments.nodes, folder), arguments.delay, arguments.rate)
    code = subprocess.call(job(arguments, folder))
    return 128 - code if code < 0 else code


def run(arguments: argparse.Namespace) -> int:
    """Run one job on virtual nodes; 124 when its time is over."""
    missing = [tool for tool in ("ip", "nsenter", "mount", "unshare") if not shutil.which(tool)]
    if missing:
        raise ClusterError(f"not installed: {', '.join(missing)}")

    def stop(number: int, _: object) -> None:
        raise SystemExit(124 if number == signal.SIGALRM else 128 + number)

    for number in STOPPING:
        signal.signal(number, stop)
    signal.setitimer(signal.ITIMER_REAL, arguments.timeout)
    folder = tempfile.mkdtemp(prefix="onesided-nodes-", dir=arguments.folder)
    words = [sys.executable, __file__, "head", "--folder", folder]
    for name in ("nodes", "ppn", "delay", "rate"):
        words += [f"--{name}", str(getattr(arguments, name))]
    words += [*(["--plain"] if arguments.plain else []), "--", *arguments.command]
    inside = None
    try:
        inside = apart(*words)
        return inside.wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if inside is not None:
            end(inside)
        shutil.rmtree(folder, ignore_errors=True)


def end(inside: subprocess.Popen[bytes]) -> None:
    """Kill the head, and with it everything inside; return when it is gone."""
    try:
        children = Path(f"/proc/{inside.pid}/task/{inside.pid}/children").read_text().split()
    except OSError:  # it has ended by itself
        children = []
    inside.kill()
    inside.wait()
    limit = time.monotonic() + 5
    while any(map(runs, children)) and time.monotonic() < limit:
        time.sleep(0.01)


def runs(pid: str) -> bool:
    """Whether a process is there, and not only its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


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
    parser.add_argument("action", choices=["run", "head"], help="run a job; head is its inside")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ppn", type=int, default=1, help="ranks on each node")
    parser.add_argument("--delay", default="", help="of a node's link, as tc writes it: 100us")
    parser.add_argument("--rate", default="", help="of a node's link, as tc writes it: 1gbit")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds; then 124")
    parser.add_argument("--plain", action="store_true", help="run on the head, without mpiexec")
    parser.add_argument("--folder", default=None, help="where to keep small files meanwhile")
    parser.add_argument("command", nargs="+")
    try:
        arguments = parser.parse_args()
        return run(arguments) if arguments.action == "run" else head(arguments)
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 125


if __name__ == "__main__":
    sys.exit(main())
