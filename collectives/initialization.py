"""The tail of every initialization function: what ranks agree on before anything is built.

A function says how this rank reads its buffers, and how ranks come from that to an operation; the
rest is the same for exchanges, broadcasts and reductions. What has been made can be made again for
other buffers: the pattern is known then, and so is the method.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from mpi4py import MPI

from onesided.collectives import debug, progress, registry
from onesided.collectives.agreement import agree_once, largest
from onesided.collectives.context import Context, Resources
from onesided.collectives.errors import OnesidedError, UnsupportedError
from onesided.collectives.hints import MANUAL, Hints
from onesided.collectives.request import Request
from onesided.collectives.transport import Operation, Transport

Info = Mapping[str, str] | MPI.Info | None

#: Why a method was taken that the environment names.
BY_ENVIRONMENT = registry.VARIABLE


@dataclass(frozen=True)
class Call:
    """An initialization function, without its buffers.

    ``name`` is the same on all ranks, with the root where there is one; ``kind`` is that of its
    methods. ``read(context, *buffers)`` is local, and returns what this rank has read, of which
    ``words`` must be the same on all ranks. ``match(read, method, context, hints, before, *most)``
    is collective, and returns the operation; ``before`` is one of the same pattern, or None, and
    ``most`` the largest of each of the ``numbers`` of all ranks.
    """

    name: str
    kind: str
    read: Callable[..., Any]
    match: Callable[..., Operation]
    words: Callable[[Any], str] = lambda read: ""
    numbers: Callable[[Any], tuple[int, ...]] = lambda read: ()


def initialize(
    call: Call, comm: MPI.Comm, buffers: tuple[Any, ...], method: str, info: Info,
    like: Request | None = None,
) -> Request:  # fmt: skip
    """Collective. One agreement, what the ranks tell each other, and what the transport needs.

    ``like``: a request of the same pattern, whose method and hints the new one has.
    """
    began = time.perf_counter()
    before = None if like is None else like.operation
    context = Context.of(comm) if before is None else before.context
    error: Exception | None = None
    read, said = None, ""
    numbers: tuple[int, ...] = ()
    try:
        if before is None:
            kind, hints = registry.wanted(method, call.kind), Hints.of(info, comm)
            said = f" {kind.name} {hints}"
        else:
            kind, hints = registry.find(before.method, call.kind), before.hints
            said = f" like request {before.number}"
        make = kind.load()  # where it cannot be loaded on some rank, no rank makes it
        read = call.read(context, *buffers)
        said += f" {call.words(read)}"
        said += f" {debug.VARIABLE}=1" * debug.enabled()  # it compares in Start, collectively
        debug.seconds()
        numbers = call.numbers(read)
    except Exception as problem:
        error = problem
    most = largest(context.comm, error, f"{call.name}{said}".rstrip(), numbers)
    context.node()  # these are collective where they are the first
    context.node(hints.ranks_per_node)
    operation = call.match(read, kind, context, hints, before, *most)
    request: Request
    if kind.chooses:
        request = make(operation)
    else:
        request = build(operation, make)
        if like is not None:
            request.chosen_by = like.chosen_by
        elif kind.name != method:
            request.chosen_by = BY_ENVIRONMENT
    request.again = partial(_again, call)
    request.setup_time = time.perf_counter() - began
    return request


def _again(call: Call, like: Request, *buffers: Any) -> Request:
    """Collective. The same pattern and method with other buffers."""
    return initialize(call, like.operation.context.comm, buffers, like.method, None, like)


def build(operation: Operation, make: Callable[..., Transport]) -> Request:
    """Collective. The request, whose transport is made by ``make``; what was made for it is given
    back where any rank fails."""
    context = operation.context
    resources = Resources(context)
    resources.keep += operation.buffers()
    transport: Transport | None = None
    request: Request | None = None
    error: Exception | None = None
    try:
        transport = make(operation, resources)
        request = Request(operation, transport, resources)
        _check_progress(request)
    except Exception as problem:
        error = problem
    try:
        agree_once(context.comm, error, f"built request {operation.number}")
    except Exception:
        if request is not None:
            request.retire()
        elif transport is not None:
            transport.forget()
        resources.release()
        context.in_step()
        raise
    if request is None:
        raise OnesidedError("the request was not built")
    if debug.enabled():
        request.observe(debug.Watch(request))
    return request


def _check_progress(request: Request) -> None:
    """Local. Raise :class:`UnsupportedError` where the method could not keep its promise.

    A method whose rounds need calls while the program is elsewhere needs a thread that may make
    them.
    """
    if request._needs_calls and request.operation.hints.progress != MANUAL:
        if not progress.may_call_from_any_thread():
            raise UnsupportedError(
                f"{request.method} moves data for others between Start and Wait, for which it "
                "needs MPI_THREAD_MULTIPLE; use mpi-persistent, or promise by info progress=manual "
                "that no rank waits for another outside of this library's calls"
            )
