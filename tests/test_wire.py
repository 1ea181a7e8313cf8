"""The wire between virtual nodes that a program carries: where frames go, and not before when."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest
import wire

HOSTS = (1, 2, 3)
EVERYBODY = b"\xff" * 6


@pytest.fixture
def ends():
    """Pairs of sockets that keep frames apart, as TAP devices do: the host's end, the switch's."""
    pairs = {host: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for host in HOSTS}
    for pair in pairs.values():
        for end in pair:
            end.setblocking(False)
    yield pairs
    for pair in pairs.values():
        for end in pair:
            end.close()


def frame(to, data=b""):
    address = (
        to if isinstance(to, bytes) else bytes.fromhex(wire.ADDRESS.format(to).replace(":", ""))
    )
    return bytes(wire.VNET_HEADER) + address + bytes(8) + data


def passed_on(switch, ends, seconds):
    """What arrives within some seconds, by host, with the time of each frame."""
    began, arrived = time.monotonic(), {host: [] for host in HOSTS}
    while time.monotonic() - began < seconds:
        switch.step(0.01)
        for host in HOSTS:
            with contextlib.suppress(BlockingIOError):
                arrived[host].append((ends[host][0].recv(1 << 17), time.monotonic() - began))
    return arrived


def switch_of(ends, delay=0.0, rate=0.0):
    return wire.Switch({host: pair[1].fileno() for host, pair in ends.items()}, delay, rate)


def test_a_frame_goes_where_its_address_says_or_to_all_others(ends):
    ends[1][0].send(frame(3, b"one"))
    ends[2][0].send(frame(EVERYBODY, b"all"))
    arrived = passed_on(switch_of(ends), ends, 0.1)
    data = {host: sorted(each[-3:] for each, _ in frames) for host, frames in arrived.items()}
    assert data == {1: [b"all"], 2: [], 3: [b"all", b"one"]}


def test_frames_keep_their_order_and_take_the_delay(ends):
    for number in range(20):
        ends[1][0].send(frame(2, bytes([number])))
    arrived = passed_on(switch_of(ends, delay=0.05), ends, 0.3)[2]
    assert [each[-1] for each, _ in arrived] == list(range(20))
    assert arrived[0][1] >= 0.05


def test_two_senders_share_the_link_of_the_receiver(ends):
    """1000 bytes at 160 kbit take 50 ms, so the second of two at once is there after 100."""
    data = bytes(1000 - 14)
    ends[1][0].send(frame(3, data))
    ends[2][0].send(frame(3, data))
    arrived = passed_on(switch_of(ends, rate=160e3), ends, 0.3)[3]
    times = [moment for _, moment in arrived]
    assert len(times) == 2
    assert times[0] >= 0.05
    assert times[1] >= 0.1


@pytest.mark.parametrize(
    ("text", "units", "number"),
    [("100us", wire.TIMES, 1e-4), ("1.5ms", wire.TIMES, 1.5e-3), ("1gbit", wire.RATES, 1e9)],
)
def test_quantities_are_read_as_tc_writes_them(text, units, number):
    assert wire.quantity(text, units) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "3", "ms", "3 ms", "3kg", "-3ms"])
def test_other_words_are_no_quantities(text):
    with pytest.raises(ValueError, match="is not a number with one of us, ms, s"):
        wire.quantity(text, wire.TIMES)
