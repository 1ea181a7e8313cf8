"""Slurm on this machine, for tests: a controller, and nodes that are all this host.

Needs root, and slurmctld, slurmd and slurm-client, as Debian has them. Everything is in a temporary
folder, on ports of its own, and ends with this program.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import cluster
import mpi_harness

PATIENCE = 30.0


def available() -> str:
    """Why there can be no Slurm here; nothing where there can."""
    for name in ("slurmctld", "slurmd", "srun", "sbatch"):
        if shutil.which(name) is None:
            return f"there is no {name}"
    return "slurmd needs root" if os.geteuid() else ""


def _ports(count: int) -> list[int]:
    """Ports that nobody listens to."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found


class Slurm:
    """A controller and nodes, while the block lasts: ``with Slurm(2) as slurm``.

    ``env`` is what srun and sbatch want to have in their environment.
    """

    def __init__(self, nodes: int = 2, cores: int = 4) -> None:
        self._names = [f"n{i}" for i in range(nodes)]
        self._cores = cores
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Slurm:
        self._temporary = tempfile.TemporaryDirectory(prefix="onesided-slurm-")
        self.folder = Path(self._temporary.name)
        self.env = os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")}
        try:
            self._configure()
            self._start("slurmctld", "-D")
            for name in self._names:
                self._start("slurmd", "-D", "-N", name)
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _configure(self) -> None:
        control, *ports = _ports(len(self._names) + 1)
        host, folder = socket.gethostname().split(".")[0], self.folder
        lines = [
            "ClusterName=onesided", f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={control}", "AuthType=auth/none", "CredType=cred/none",
            f"SlurmUser={getpass.getuser()}", f"SlurmdUser={getpass.getuser()}",
            f"StateSaveLocation={folder}/state", f"SlurmdSpoolDir={folder}/spool-%n",
            f"SlurmctldPidFile={folder}/control.pid", f"SlurmdPidFile={folder}/%n.pid",
            f"SlurmctldLogFile={folder}/control.log", f"SlurmdLogFile={folder}/%n.log",
            "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none", "SwitchType=switch/none",
            "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core", "MpiDefault=none",
            "ReturnToService=2", "SchedulerParameters=bf_interval=1,sched_min_interval=100000",
            "LaunchParameters=use_interactive_step", "SlurmdParameters=config_overrides",
        ]  # fmt: skip
        for name, port in zip(self._names, ports, strict=True):
            lines.append(f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
                         f"CPUs={self._cores} State=UNKNOWN")  # fmt: skip
        names = ",".join(self._names)
        lines.append(f"PartitionName=all Nodes={names} Default=YES MaxTime=10 State=UP")
        (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        (folder / "state").mkdir()
        for name in self._names:
            (folder / f"spool-{name}").mkdir()

    def _start(self, *words: str) -> None:
        with open(self.folder / "daemons.log", "ab") as log:
            self._processes.append(subprocess.Popen(
                words, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=mpi_harness.die_with_parent))  # fmt: skip

    def _wait(self) -> None:
        """Until all nodes are idle."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            done = self.call("sinfo", "-h", "-o", "%t %D")
            if done.stdout.split() == ["idle", str(len(self._names))]:
                return
            if any(process.poll() is not None for process in self._processes):
                break
            time.sleep(0.2)
        raise cluster.ClusterError(f"Slurm does not come up\n{self.logs()}")

    def logs(self) -> str:
        """What the daemons have written."""
        return "\n".join(path.read_text(errors="replace")[-3000:]
                         for path in sorted(self.folder.glob("*.log")))  # fmt: skip

    def call(self, *words: str, timeout: float = 120.0, **env: str
             ) -> subprocess.CompletedProcess[str]:
        """A command of Slurm's, or of anybody who calls it."""
        return subprocess.run(words, env=self.env | env, capture_output=True, text=True,
                              timeout=timeout, check=False)  # fmt: skip

    def batch(self, script: Path, *options: str, timeout: float = 120.0, **env: str) -> str:
        """What a job script has written, once it is through."""
        out = self.folder / f"{script.stem}.out"
        done = self.call("sbatch", "--wait", "-o", str(out), *options, str(script),
                         timeout=timeout, **env)  # fmt: skip
        text = out.read_text(errors="replace") if out.exists() else ""
        if done.returncode:
            raise cluster.ClusterError(f"{done.stdout}{done.stderr}{text}\n{self.logs()}")
        return text

    def __exit__(self, *_: object) -> None:
        self.call("scancel", "--state=RUNNING", "--me") if self._processes else None
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._processes):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._temporary.cleanup()
