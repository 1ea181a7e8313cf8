"""A slow wire between virtual nodes, for kernels that cannot shape one themselves.

Every host gets a TAP device, and one process passes the frames on. A frame leaves when the link of
its sender is done with the one before, travels for the delay, and arrives when the link of its
receiver has taken it in; so each link has its rate in both directions. The process itself adds
some ten microseconds, and carries about ten gigabits per second at most.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import re
import select
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass

TUN = "/dev/net/tun"
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4 = 0x01, 0x02
VNET_HEADER = 10  # bytes before a frame, in which the kernel says what it left undone
FRAME = VNET_HEADER + 14 + (1 << 16)  # with segmentation left undone, 64 KiB at a time
ADDRESS = "02:00:00:00:00:{:02x}"  # of the host with this number, the last byte of a MAC address

TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
RATES = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def quantity(text: str, units: Mapping[str, float]) -> float:
    """A number with a unit, as tc writes it; ValueError for anything else."""
    found = re.fullmatch(r"([0-9.]+)([a-z]+)", text)
    if not found or found[2] not in units:
        raise ValueError(f"{text!r} is not a number with one of {', '.join(units)}")
    return float(found[1]) * units[found[2]]


def tap(name: str) -> int:
    """A new TAP device in the network namespace of this process; where its frames are read."""
    descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    fcntl.ioctl(descriptor, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)
    return descriptor


@dataclass
class Port:
    """A host's end: where its frames are read and written, and until when its link is busy."""

    descriptor: int
    sending_until: float = 0.0
    receiving_until: float = 0.0


class Switch:
    """Passes frames between hosts, given by number; ``rate`` in bits per second, 0 for any."""

    def __init__(self, descriptors: Mapping[int, int], delay: float, rate: float) -> None:
        self._ports = {host: Port(descriptor) for host, descriptor in descriptors.items()}
        self._delay = delay
        self._per_byte = 8 / rate if rate else 0.0
        self._count = 0
        self._travelling: list[tuple[float, int, int, bytes]] = []  # due, count, to, frame

    def run(self) -> None:
        """Until this process ends. It goes first on its core, or the wire would be slower yet."""
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        while True:
            self.step(None)

    def step(self, patience: float | None) -> None:
        """Hand over what is due and take what is there; wait for that, at most ``patience``."""
        now = time.monotonic()
        while self._travelling and self._travelling[0][0] <= now:
            _, _, descriptor, frame = heapq.heappop(self._travelling)
            with contextlib.suppress(OSError):  # nobody takes it: it is lost, as on a wire
                os.write(descriptor, frame)
            now = time.monotonic()
        # a host that is sending keeps its next frame, so that its programs notice
        ready = {p.descriptor: host for host, p in self._ports.items() if p.sending_until <= now}
        events = [p.sending_until for p in self._ports.values() if p.sending_until > now]
        events += [self._travelling[0][0]] if self._travelling else []
        limits = [max(0.0, event - now) for event in events]
        limits += [] if patience is None else [patience]
        for descriptor in select.select(list(ready), [], [], min(limits, default=None))[0]:
            with contextlib.suppress(BlockingIOError):
                self._accept(ready[descriptor], os.read(descriptor, FRAME))

    def _accept(self, sender: int, frame: bytes) -> None:
        takes = (len(frame) - VNET_HEADER) * self._per_byte
        port = self._ports[sender]
        port.sending_until = time.monotonic() + takes
        to = frame[VNET_HEADER + 5]  # the last byte of the address it goes to
        hosts = [to] if to in self._ports else [host for host in self._ports if host != sender]
        for host in hosts:
            other = self._ports[host]
            arrives = max(port.sending_until + self._delay, other.receiving_until + takes)
            other.receiving_until = arrives
            self._count += 1
            heapq.heappush(self._travelling, (arrives, self._count, other.descriptor, frame))
