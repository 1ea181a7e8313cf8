"""Window memory and what requests leave behind: views, leaks, limits, clean-up."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import sys
import warnings
import weakref

import numpy as np
from cases import parameters, ranks, skip
from errors import agreed, raises, works
from exchange_data import Vector, any_order, names, tables
from mpi4py import MPI

from onesided.collectives import (
    Alltoall_init,
    Alltoallv_init,
    OnesidedError,
    Precv_init,
    Psend_init,
    RequestError,
    ResourceError,
    empty,
    free,
    methods,
    node_memory,
)
from onesided.collectives.context import Context
from onesided.collectives.memory import Region, _regions
from onesided.collectives.testing import EVEN, Buffer


def settled(comm):
    """What the library holds for this communicator, and all regions but those of the arena."""
    gc.collect()
    context = Context.of(comm)
    return len(context.live), len(_regions) - sum(
        len(each.arena.regions) for each in Context._all.values() if each.arena is not None)


def owner(view):
    """What holds the memory that an array shows."""
    while isinstance(view, np.ndarray | memoryview):
        view = view.base if isinstance(view, np.ndarray) else view.obj
    return view


def case_empty(comm):
    for shape, dtype in ((7, "f8"), ((3, 4), "c16"), ((2, 0, 5), "i4"), ((), "u1"),
                         ((comm.rank, 3), "u1")):  # fmt: skip
        array = empty(comm, shape, dtype)
        assert array.dtype == np.dtype(dtype)
        assert array.shape == (shape if isinstance(shape, tuple) else (shape,))
        assert array.flags.writeable
        assert array.flags.c_contiguous
        array[...] = comm.rank
        comm.Barrier()
        assert np.all(array == np.asarray(comm.rank, dtype))
        free(array)


def case_a_request_dropped_in_its_round_is_kept(comm):
    """Peers may still write to its memory, also where the warning is an error."""
    exchange = Vector(comm, tables(comm.size)["uneven"], "rma-notify")
    exchange.fill(1)
    exchange.request.Start()
    kept = exchange.request.resources.keep
    seen, hook = [], sys.unraisablehook
    sys.unraisablehook = lambda entry: seen.append(entry.exc_type)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            exchange.request = None
            gc.collect()
    finally:
        sys.unraisablehook = hook
    assert seen == [ResourceWarning]
    request = kept[-1]
    assert request.active
    request.Wait()
    request.Free()


def case_views_outlive_free(comm):
    """The memory stays mapped while somebody looks at it, and goes when nobody does."""
    array = empty(comm, 1000)
    array[:] = comm.rank
    view = array[10:20]
    free(array)
    del array
    assert np.all(view == comm.rank)
    works(comm, "rma-notify")
    assert np.all(view == comm.rank)
    mapping = weakref.ref(owner(view))
    assert mapping() is not None
    del view
    gc.collect()
    assert mapping() is None
    assert settled(comm) == (0, 0)


@parameters(method=names)
def case_many_cycles_leave_nothing(comm, method, options):
    """Create, start, wait, free: no window, communicator or memory is left over."""
    cycles = int(options.get("cycles", "60"))
    table = tables(comm.size)["uneven"]
    windows = [Vector(comm, table, method, "window") for _ in range(2)]
    for exchange in windows:
        exchange.free()
    windows = exchange = None
    assert settled(comm) == (0, 0)
    for turn in range(10):
        cycle(comm, table, method, turn)
    used = resident()
    for turn in range(cycles):
        cycle(comm, table, method, turn)
    assert settled(comm) == (0, 0)
    grown = resident() - used
    # A leaked window costs kilobytes; an interpreter breathes, and Open MPI itself keeps some
    # hundred bytes of every window. auto makes a request of each candidate in every cycle.
    tried = sum(m.candidate and m.any_order for m in methods().values())
    made = cycles * (1 + tried if method == "auto" else 1)
    assert grown < 2_000_000 + 500 * made, f"{grown} bytes more after {made} requests"


def cycle(comm, table, method, turn):
    exchange = Vector(comm, table, method, ["own", "window", "plain"][turn % 3])
    exchange.round(turn)
    exchange.free()


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@ranks(at_most=1)
@parameters(method=["rma-notify", "rma-lock-paper"])
def case_more_windows_than_mpich_has(comm, method):
    """The limit of about 2,046 windows is met with a clear error, after which all goes on; methods
    that share the windows of their communicator do not meet it."""
    if "MPICH" not in MPI.Get_library_version():
        skip("only MPICH has this limit")
    table = np.ones((comm.size, comm.size), int)
    held = []
    try:
        for _ in range(2100):
            held.append(Vector(comm, table, method))
    except ResourceError as error:
        assert "free requests" in str(error)
        raises(ResourceError, lambda: Vector(comm, table, "mpi"), "free requests")
    assert (len(held) == 2100) == (method != "rma-lock-paper"), len(held)
    assert len(held) > 500
    for exchange in held[::97]:
        exchange.round(1)
    for exchange in held:
        exchange.free()
    held = exchange = None
    assert settled(comm) == (0, 0)


@parameters(of=["empty", "a node of one rank"])
def case_not_enough_memory(comm, of):
    """A rank that is alone on its node shares nothing, and has no more than there is."""
    if of == "empty":
        agreed(comm, ResourceError, lambda: empty(comm, 1 << 50, "u1"), "bytes of")
    else:
        context = Context.of(comm)
        raises(ResourceError, lambda: Region(context, context.node(1), 1 << 50),
               f"{1 << 50:,} bytes")  # fmt: skip
    works(comm, "rma-notify")


@ranks(at_least=2)
@parameters(closed=["", "proc", "proc and sockets", "all"])
def case_ways_to_memory_of_others(comm, closed):
    """Where a rank does not get a file in one way, all of its node go another; one with a name is
    the last. No descriptor and no name is left over, and an array outlives all else."""
    context = Context(comm)
    node, own = context.node(), Region(Context.of(comm), Context.of(comm).node(), 8)
    before, names = len(os.listdir("/proc/self/fd")), set(os.listdir(node_memory.FOLDER))
    by_path, by_socket = node_memory._of_path, node_memory._of_socket

    def closed_path(path, *known):
        return -1 if closed == "all" or path.startswith("/proc") else by_path(path, *known)

    if closed and comm.rank == comm.size - 1:
        node_memory._of_path = closed_path
    if closed in ("proc and sockets", "all") and comm.rank == comm.size - 1:
        node_memory._of_socket = lambda *_: -1
    size, refused = (comm.rank + 1) * (5 << 20) // 4, False
    try:
        region = Region(context, node, size)
    except ResourceError as error:
        assert "cannot share any" in str(error)
        refused = True
    finally:
        node_memory._of_path, node_memory._of_socket = by_path, by_socket
    assert refused == (closed == "all" and any(comm.allgather(len(node.ranks) > 1)))
    if refused:
        region = Region(context, node, size)  # another time it works
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    mine, far = region.own(), right not in node.rank_of
    assert mine.ctypes.data % (1 << 12) == 0
    assert len(os.listdir("/proc/self/fd")) == before
    assert not [name for name in set(os.listdir(node_memory.FOLDER)) - names
                if name.startswith("onesided-") and not name.endswith(".lock")]
    if not far:
        region.part(node.rank_of[right])[:] = comm.rank
    comm.Barrier()
    if left in node.rank_of:
        assert np.all(mine == left)
    own.release()
    region.release()
    context.close()
    mine[:] = 1
    assert np.all(mine == 1)


def case_a_dropped_request_warns_and_calls_nothing(comm):
    exchange = Vector(comm, tables(comm.size)["uneven"], "rma-notify")
    exchange.round(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if comm.rank == 0:
            exchange.request = None
            gc.collect()
            assert [w.category for w in caught] == [ResourceWarning]
            assert "never freed" in str(caught[0].message)
        else:
            assert not caught
            exchange.request.retire()
    works(comm, "rma-notify")
    list(Context.of(comm).live)[-1].release()
    assert settled(comm)[0] == 0


def case_views_outlive_the_communicator(comm):
    """What somebody still looks at when the last request ends stays."""
    settled(comm)
    for method in ("rma-notify", "rma-fence"):
        mine = comm.Dup()
        exchange = Vector(mine, tables(comm.size)["uneven"], method)
        exchange.fill(5)
        exchange.request.Start()
        got = exchange.request.Wait()
        exchange.request.Free()
        exchange.request = None
        mine.Free()
        exchange.check(5, got)
        before = list(Context._all)
        settled(comm)
        exchange.check(5, got)
        assert list(Context._all) == before


def case_a_request_that_cannot_be_retired_leaves_no_other_alive(comm):
    """Where MPI ends before they are freed: what they use goes."""
    mine = comm.Dup()
    made = [Alltoallv_init(mine, np.ones(comm.size), None, method="p2p") for _ in range(3)]

    def broken():
        raise ArithmeticError("not retired")

    made[1].retire = broken
    raises(ArithmeticError, Context.of(mine).close, "not retired")
    assert [each.state for each in made] == ["freed", "inactive", "freed"]
    del made[1].retire
    made[1].retire()
    mine.Free()


def case_one_window_memory_for_several_requests(comm):
    """One array as the target of two requests, one at a time, and the source of a third."""
    size = comm.size
    for method in names():
        memory = empty(comm, 2 * size)
        a, b = np.zeros(2 * size), np.zeros(2 * size)
        requests = [
            Alltoallv_init(comm, a, memory, method=method),
            Alltoallv_init(comm, b, memory, method=method),
            Alltoallv_init(comm, memory, None, method=method),
        ]
        for turn in range(4):
            for number, source in enumerate((a, b)):
                source[:] = 100 * turn + 10 * comm.rank + number
                requests[number].Start()
                assert requests[number].Wait() is memory
                want = 100 * turn + 10 * np.repeat(np.arange(size), 2) + number
                np.testing.assert_array_equal(memory, want)
            requests[2].Start()
            np.testing.assert_array_equal(
                requests[2].Wait(), np.full(2 * size, 100 * turn + 10 * comm.rank + 1)
                if size == 1 else 100 * turn + 10 * comm.rank + 1.0)
        for request in requests:
            request.Free()
        free(memory)


@ranks(at_least=2)
def case_window_memory_of_a_larger_communicator(comm):
    """Memory from empty() on all ranks serves requests of a part of them."""
    memory = empty(comm, 4 * comm.size)
    part = comm.Split(comm.rank % 2, -comm.rank)
    send = np.full(2 * part.size, 1.0 * comm.rank)
    here = memory[comm.size : comm.size + 2 * part.size]
    for method in names():
        with Alltoallv_init(part, send, here, method=method) as request:
            for _ in range(3):
                here[:] = -1
                request.Start()
                request.Wait()
                want = np.repeat(part.allgather(comm.rank), 2)
                np.testing.assert_array_equal(here, want, err_msg=method)
    part.Free()
    free(memory)


@parameters(method=names)
def case_bound_buffers_cannot_be_resized(comm, method):
    send = np.zeros(comm.size)
    with Alltoallv_init(comm, send, None, method=method) as request:
        raises(ValueError, lambda: send.resize(10 * comm.size), "resize")
        request.Start()
        request.Wait()


@parameters(held=["send", "recv"], holes=[False, True], method=["auto", "p2p", "mpi-persistent"])
def case_free_refuses_memory_of_a_request(comm, held, holes, method):
    send, recv = (Buffer([2] * comm.size, EVEN, holes, comm if held == side else None)
                  for side in ("send", "recv"))
    with Alltoall_init(comm, send.spec(), recv.spec(), method=method):
        memory = (send if held == "send" else recv).array
        agreed(comm, RequestError, lambda: free(memory))
    send.free()
    recv.free()


# -- a node without shared memory, and memory in use: nobody is left behind ------------------------


def outcome(comm, call):
    """What a call made, or None where it raised, on all ranks alike."""
    made = None
    try:
        made = call()
    except (OnesidedError, MemoryError):
        pass
    told = comm.allgather(made is None)
    assert len(set(told)) == 1, told
    return made


@contextlib.contextmanager
def no_shared_memory(comm, of="files"):
    """No files, or no pages for the last rank; how often."""
    raised, made, named, claim = (
        [0], node_memory._made, node_memory._named, node_memory.Mapping.claim)

    def refused(*_):
        raised[0] += 1
        raise OSError("injected: no files")

    def claimed(*arguments):
        raised[0] += 1
        if comm.rank == comm.size - 1:
            raise OSError("injected: no page is left")
        claim(*arguments)

    if of == "files":
        node_memory._made = node_memory._named = refused
    else:
        node_memory.Mapping.claim = claimed
    try:
        yield raised
    finally:
        node_memory._made, node_memory._named, node_memory.Mapping.claim = made, named, claim


@ranks(at_least=2)
@parameters(what=lambda: ["empty", *any_order()], of=["files", "pages"])
def case_a_node_has_no_shared_memory(comm, what, of):
    """The ranks of a node allocate together, so all of them fail, and the next one works; slots as
    long as these have a region of their own."""
    send, counts = np.zeros(200_000 * comm.size), [200_000] * comm.size
    with no_shared_memory(comm, of) as raised:
        made = outcome(comm, lambda: empty(comm, 100) if what == "empty" else Alltoallv_init(
            comm, [send, counts], None, method=what))  # fmt: skip
    failed = any(comm.allgather(raised[0]))
    assert failed if made is None else what != "empty" or not failed
    if what != "empty" and made is not None:
        made.Free()
    elif made is not None:
        free(made)
    free(empty(comm, 100))
    works(comm, "rma-notify" if what == "empty" else what)


@ranks(at_least=2)
@parameters(method=["rma", "p2p"])
def case_free_of_memory_in_use_on_one_rank(comm, method):
    """A partitioned receive is one rank's affair, and yet no rank may take its memory away."""
    last = comm.size - 1
    memory = empty(comm, 64 if comm.rank == last else 0)
    source = np.arange(64.0)
    request = None
    if comm.rank == last:
        request = Precv_init(comm, memory, 2, 0, method=method)
    agreed(comm, RequestError, lambda: free(memory))
    if comm.rank == 0:
        request = Psend_init(comm, source, 4, last, method=method)
    if request is not None:
        request.Start()
        if comm.rank == 0:
            request.Pready_range(0, 3)
        request.Wait()
    if comm.rank == last:
        np.testing.assert_array_equal(memory, source)
    if request is not None:
        request.Free()
    free(memory)
    again = empty(comm, 8)
    again[:] = 1
    free(again)
