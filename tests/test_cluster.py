"""Virtual nodes: what they keep apart, what they leave behind, how they end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import cluster
import mpi_harness
import processes
import pytest

CLUSTER = str(mpi_harness.TESTS / "cluster.py")


def start(tmp_path, *words, timeout="30"):
    command = [sys.executable, CLUSTER, "run", "--folder", str(tmp_path), "--timeout", timeout]
    mark = f"nodes-{os.getpid()}-{time.monotonic_ns()}"
    env = {**os.environ, "ONESIDED_MARK": mark}
    return subprocess.Popen([*command, "--plain", "--", *words], env=env), mark


def test_the_exit_code_of_the_job_is_ours(virtual_nodes, tmp_path):
    program, _ = start(tmp_path, "sh", "-c", "exit 7")
    assert program.wait(30) == 7
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGALRM])
def test_nothing_is_left_however_it_ends(virtual_nodes, tmp_path, number):
    limit = "1" if number == signal.SIGALRM else "30"
    program, mark = start(tmp_path, "ssh", "node1", "sleep", "300", timeout=limit)
    try:
        wait_until(lambda: sleepers(mark) or program.poll() is not None)
        if number != signal.SIGALRM:
            program.send_signal(number)
        code = program.wait(30)
        assert code == {signal.SIGTERM: 143, signal.SIGKILL: -9, signal.SIGALRM: 124}[number]
        wait_until(lambda: not processes.marked(mark))
    finally:
        program.kill()
        processes.end(mark, program.pid, patience=0)
    if number != signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []


def sleepers(mark):
    """Whether the job has begun: a process of it is `sleep` and nothing else."""
    for pid in processes.marked(mark):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if file.read().startswith(b"sleep\0"):
                return True
    return False


def wait_until(condition, seconds=20.0):
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            pytest.fail("nothing happened for too long")
        time.sleep(0.05)


SLOW_WIRE = """
import socket, subprocess, sys, time
serve = (
    "import socket; s = socket.create_server(('', 7001)); print(flush=True); c, _ = s.accept()\\n"
    "while data := c.recv(1 << 16): c.sendall(b'+' * data.count(b'.'))"
)
def wire_to(host, *words):
    server = subprocess.Popen([*words, f'{sys.executable} -c "{serve}"'], stdout=-1)
    server.stdout.readline()
    return socket.create_connection((host, 7001))
def answer_to(wire, data):
    began = time.monotonic()
    wire.sendall(data)
    wire.recv(1)
    return time.monotonic() - began
here, there = wire_to("127.0.0.1", "sh", "-c"), wire_to("node1", "ssh", "node1")
print(*[min(answer_to(wire, data) for _ in range(5)) for wire, data in (
    (here, b"."), (there, b"."), (there, b"-" * 250_000 + b"."))])
"""


def test_a_shaped_wire_is_slower_than_none_and_slower_with_more_to_carry(virtual_nodes, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(SLOW_WIRE)
    words = ["--delay", "20ms", "--rate", "20mbit", "--timeout", "60", "--plain", "--"]
    done = subprocess.run(
        [sys.executable, CLUSTER, "run", *words, sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    if done.returncode == 125:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    within, one, many = map(float, done.stdout.split())
    assert within < one < many


@pytest.mark.parametrize("words", [["--delay", "3furlongs"], ["--rate", "fast"]])
def test_a_wire_that_cannot_be_shaped_is_an_error_not_a_fast_wire(virtual_nodes, words):
    words = [sys.executable, CLUSTER, "run", *words, "--plain", "--", "true"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 125
    assert done.stderr.startswith("cluster: ")


def test_the_reason_is_told_where_nodes_cannot_be_made(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    cluster.available.cache_clear()
    try:
        assert "not installed: ip" in cluster.available()
    finally:
        monkeypatch.undo()
        cluster.available.cache_clear()
