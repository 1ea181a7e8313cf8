"""What the requests of one communicator share: a private duplicate, its nodes, its order.

A request must not share message or collective matching with its caller (MPI-4.1 section 7.13),
and must survive the caller's ``comm.Free()``. Duplicating a communicator for every request would
meet MPICH's limit of about 2,046 communicators and windows, so one duplicate serves all requests
of a communicator: it is attached to it as an attribute and lives until the communicator and the
last request that uses it are gone.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import signal
import sys
import threading
import time
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import profiling, progress
from onesided.collectives.agreement import largest, words_of_all
from onesided.collectives.errors import (
    OnesidedError,
    ResourceError,
    UnsupportedError,
    class_of,
    in_forked_child,
)


class Resources:
    """What must be given back collectively, in reverse order of creation.

    Kept apart from the request so that a request dropped without ``Free`` can be collected (with
    a warning) while its windows and buffers stay valid for peers until Finalize.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._closing: list[tuple[Callable[[], object], bool]] = []
        self._owner: weakref.ref[Any] | None = None
        self.keep: list[object] = []  # buffers that MPI or peers may still touch
        context.live[self] = None

    def belong_to(self, request: Any) -> None:
        """Local. The request for which this is kept; it is retired where MPI ends before it."""
        self._owner = weakref.ref(request)

    @property
    def request(self) -> Any:
        """Local. The request, if there is one."""
        return None if self._owner is None else self._owner()

    def on_release(self, action: Callable[[], object], in_step: bool = False) -> None:
        """Local. Run ``action`` at release, before what was added earlier. ``in_step``: it is
        possible only where every rank has completed the same rounds."""
        self._closing.append((action, in_step))

    def release(self, broken: bool = False) -> None:
        """Collective over the context. Give everything back; a second call does nothing.

        ``broken``, the same on all ranks: a round has been interrupted on one of them. A window
        with an epoch that nobody will close stays until MPI's end, because MPI cannot free it.
        """
        if self not in self.context.live:
            return
        del self.context.live[self]
        problem: Exception | None = None
        while self._closing:
            action, in_step = self._closing.pop()
            try:
                if not (broken and in_step):
                    action()
            except Exception as error:  # the others are collective, too
                problem = problem or error
        if not broken:  # else a message may still be on its way into a buffer
            self.keep.clear()
        self.context.torn |= broken
        self.context.let_go(self.keep)
        if problem is not None:
            raise problem


class Scoped(ABC):
    """What a ``with`` block frees where it ends well.

    After an exception nothing is called, because freeing may be collective and other ranks may not
    come; what is left is given back at the end.
    """

    @abstractmethod
    def Free(self) -> None:
        """Give everything back; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.Free()


class Attachment:
    """All that this package attaches to a communicator: its context, and the letters of its
    partitioned sends.

    It has no function for the end of the communicator: mpi4py makes a communicator to call one,
    and looks for its topology among the attributes, of which MPICH 5.0 has freed some by then but
    not unlinked (mpi4py itself has one there as soon as objects travel). That crashed. What is
    attached is an object that nobody else has: Python drops it in the middle of ``comm.Free()``.
    """

    _keyval = MPI.KEYVAL_INVALID
    _lock = threading.Lock()
    mailbox: Any = None
    context: Context | None = None

    @classmethod
    def of(cls, comm: MPI.Comm) -> Attachment:
        """Local. Raises :class:`OnesidedError` for what is no communicator of this process."""
        if not MPI.Is_initialized() or MPI.Is_finalized():
            raise OnesidedError("MPI is not initialized, or has been finalized")
        if in_forked_child():
            raise OnesidedError("MPI belongs to the parent of this forked child")
        if not isinstance(comm, MPI.Comm) or comm == MPI.COMM_NULL:
            raise OnesidedError("the communicator is null or has been freed")
        if comm.Is_inter() or not isinstance(comm, MPI.Intracomm):
            raise UnsupportedError("one-sided exchanges need an intracommunicator")
        found: Any = None if cls._keyval == MPI.KEYVAL_INVALID else comm.Get_attr(cls._keyval)
        if found is None:
            with cls._lock:
                if cls._keyval == MPI.KEYVAL_INVALID:
                    _clean_up_at_finalize()
                    cls._keyval = MPI.Comm.Create_keyval()
                if comm.Get_attr(cls._keyval) is None:
                    comm.Set_attr(cls._keyval, _Attribute(comm, cls()))
                found = comm.Get_attr(cls._keyval)
        attachment: Attachment = found.attachment
        return attachment


class _Attribute:
    """What MPI holds of an attachment. ``comm`` is another object for the same communicator."""

    def __init__(self, comm: MPI.Intracomm, attachment: Attachment) -> None:
        self.comm, self.attachment = MPI.Intracomm(comm), attachment

    def __del__(self) -> None:
        if not _ended:  # else MPI_Finalize deletes attributes: other ranks may be gone
            with interrupts_later(elsewhere=True):
                _communicator_freed(self.comm, self.attachment)


class Context:
    """The private side of a communicator; made by the first collective call on it.

    ``comm`` is the duplicate; ``live`` holds the resources in use in the order of their
    creation, which is the same on all ranks; ``attached`` what is closed where the communicator
    is freed, or MPI ends; ``ordered`` the strictly ordered requests that are active, in the order
    of their starts; ``arena`` the memory that requests share (:mod:`.arena`).
    """

    _all: ClassVar[dict[int, Context]] = {}  # by number: in the order of creation
    _torn: ClassVar[list[Context]] = []  # closed ones to which messages may be under way
    _numbers = itertools.count(1)

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm: MPI.Intracomm = comm.Dup()
        self.group = self.comm.Get_group()
        self._firsts: NDArray[np.int32] | None = None
        error: Exception | None = None
        try:
            self._firsts = _known_firsts(self.group)
        except Exception as problem:
            error = problem
        self.live: dict[Resources, None] = {}
        self.attached: list[Any] = []
        self.allocations: dict[str, Resources] = {}  # of memory.empty(), by the key of the region
        self.ordered: list[Any] = []
        self.arena: Any = None
        self.decided: dict[str, Any] = {}  # by ``auto``: what is known of situations
        self.loaded: set[str] = set()  # candidates that every rank has loaded
        self.shared: dict[object, Any] = {}  # of the communicator's own requests, by what they do
        self.orphaned = False
        self.torn = False  # messages may have been sent that nobody will receive
        self._lost: list[object] = []
        self._blocking: MPI.Intracomm | None = None
        name = uuid.uuid4().int >> 66 if self.comm.rank == 0 else 0
        unknown, name = largest(self.comm, error, "context", [self._firsts is None, name])
        if unknown:
            self._firsts = None
        self.key = f"{name:016x}"
        self._nodes: dict[int | None, Node] = {}
        self._tags = 0
        self._spare_tags: list[int] = []
        self.number = next(Context._numbers)
        Context._all[self.number] = self

    @classmethod
    def of(cls, comm: MPI.Comm) -> Context:
        """Collective on the first call for a communicator, local afterwards."""
        attachment = Attachment.of(comm)
        if attachment.context is None:
            attachment.context = acquired(cls, comm)
        return attachment.context

    def requests(self) -> list[Any]:
        """Local. Those that have not been freed."""
        found = [resources.request for resources in list(self.live)]
        return [request for request in found if request is not None]

    def has_broken(self) -> bool:
        """Local. Whether an exception has ended a round of a request that has not been freed."""
        return any(request.state == "broken" for request in self.requests())

    def broken_by(self, error: BaseException) -> bool:
        """Local. The same, by this one or one that it came from."""
        causes: list[BaseException] = []
        following: BaseException | None = error
        while following is not None and all(following is not each for each in causes):
            causes.append(following)
            following = following.__cause__ or following.__context__
        found = [request for request in self.requests() if request.state == "broken"]
        return any(request.cause is each for request in found for each in causes)

    def node(self, ranks_per_node: int | None = None) -> Node:
        """Collective on the first call for a value. The ranks that share memory with this one.

        ``ranks_per_node`` emulates smaller nodes: consecutive ranks in groups of that size.
        """
        if ranks_per_node not in self._nodes:
            if self._firsts is None:
                self._firsts = _found_firsts(self.comm, self.group)
            self._nodes[ranks_per_node] = Node(self, self._firsts, ranks_per_node)
        return self._nodes[ranks_per_node]

    def for_blocking(self) -> MPI.Intracomm:
        """Collective on the first call. Another duplicate, for MPI's own blocking collectives: here
        they would be matched with calls of this package, where another rank is in one."""
        if self._blocking is None:
            self._blocking = acquired(self.comm.Dup)
        return self._blocking

    def next_tag(self) -> int:
        """Local, but called in the same order on all ranks. A tag no other request uses, not 0."""
        bound = self.comm.Get_attr(MPI.TAG_UB)
        self._tags = self._tags % (bound if isinstance(bound, int) else 32767) + 1
        return self._tags

    def take_tags(self, count: int) -> list[int]:
        """Local, but called in the same order on all ranks. Tags that no other request uses."""
        taken, self._spare_tags = self._spare_tags[:count], self._spare_tags[count:]
        return taken + [self.next_tag() for _ in range(count - len(taken))]

    def give_tags(self, tags: list[int]) -> None:
        """Local, but called in the same order on all ranks. Others may use these tags again."""
        self._spare_tags += tags

    def in_step(self) -> None:
        """Collective, after an initialization that failed. Ranks may have taken different numbers
        of tags: go on from the most."""
        self._tags = largest(self.comm, None, "tags", [self._tags])[0]
        self._spare_tags = []

    def let_go(self, lost: Sequence[object] = ()) -> None:
        """Collective. The context ends with the last request where the communicator is gone.
        ``lost``: buffers of a round that was given up, which live as long as this."""
        self._lost += lost
        if self.orphaned and not self.live:
            self.close()

    def drop_shared(self) -> None:
        """Collective. Free the requests that belong to the communicator; where one is in the
        middle of a round on any rank, messages to it may come later."""
        if not self.shared:
            return
        states = {each.request.state for each in self.shared.values()}
        torn = largest(self.comm, None, "shared requests", [int(states != {"inactive"})])[0]
        while self.shared:
            request = self.shared.popitem()[1].request
            request.retire()
            request.resources.release(bool(torn))

    def detach(self) -> None:
        """Collective. Close what is attached."""
        while self.attached:
            self.attached.pop(0).detach()

    def close(self) -> None:
        """Collective. Free what is left, last things first; the context is of no use afterwards."""
        if Context._all.pop(self.number, None) is None:
            return
        with contextlib.ExitStack() as end:  # all of it from the last one on, whatever fails
            end.callback(self._free)
            end.callback(self.detach)
            end.callback(self._close_arena)
            for resources in self.live:
                end.callback(resources.release)
            for request in self.requests():
                end.callback(request.retire)
            self.drop_shared()

    def _close_arena(self) -> None:
        if self.arena is not None:
            if self.torn:  # messages may still come into its memory
                self._lost += [region.own() for region in self.arena.regions.values()]
            self.arena.close()

    def _free(self) -> None:
        nodes = [node for node in self._nodes.values() if not node.alone]
        self._nodes.clear()
        if self.torn:  # messages to the next communicator with this one's number would match them
            Context._torn.append(self)
            return
        for node in nodes:
            node.comm.Free()
        if self._blocking is not None:
            self._blocking.Free()
        self.group.Free()
        self.comm.Free()


class Node:
    """The ranks of a context that share a node: ``comm``, and ``rank_of``, their node ranks.

    ``alone`` is true where every rank of the context is on this node, and then ``comm`` is that of
    the context; ``firsts`` has for each rank of the context the lowest one of its node; ``way`` is
    the first that may lead to memory of other ranks (:mod:`.node_memory`).
    """

    way = 0

    def __init__(
        self, context: Context, firsts: NDArray[np.int32], ranks_per_node: int | None
    ) -> None:
        """Collective where not all ranks are on one node. ``firsts``: of the real nodes."""
        rank, size = context.comm.rank, context.comm.size
        if ranks_per_node is not None:
            firsts = _firsts_of(firsts.astype(np.int64) * size + np.arange(size) // ranks_per_node)
        self.firsts = firsts
        self.ranks: list[int] = np.flatnonzero(firsts == firsts[rank]).tolist()
        self.rank_of = {rank: number for number, rank in enumerate(self.ranks)}
        self.alone = len(self.ranks) == size
        self.comm: Any = context.comm  # of Comm only an Intracomm can allocate shared memory
        if not self.alone:
            self.comm = acquired(context.comm.Split, int(firsts[rank]), rank)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many ranks each node has, in order of their lowest ranks."""
        return tuple(np.unique(self.firsts, return_counts=True)[1].tolist())


#: Which ranks share nodes is asked once, by the largest communicator so far: its ranks in
#: ``MPI.COMM_WORLD``, ascending, and for each the lowest of those on its node.
_known: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None


def _world_ranks(group: MPI.Group) -> NDArray[np.int32]:
    """Local. The ranks of a group in ``MPI.COMM_WORLD``; negative where they are not in it."""
    world = MPI.COMM_WORLD.Get_group()
    ranks = np.array(MPI.Group.Translate_ranks(group, None, world), np.int32)
    world.Free()
    return ranks


def _firsts_of(nodes: NDArray[Any]) -> NDArray[np.int32]:
    """Local. The lowest rank of every rank's node, from anything that tells nodes apart."""
    lowest: dict[int, int] = {}
    return np.array([lowest.setdefault(node, k) for k, node in enumerate(nodes.tolist())], np.int32)


def _known_firsts(group: MPI.Group) -> NDArray[np.int32] | None:
    """Local. The lowest rank of every rank's node, where that is known already."""
    if _known is None:
        return None
    ranks, nodes = _world_ranks(group), _known
    place = np.minimum(np.searchsorted(nodes[0], ranks), len(nodes[0]) - 1)
    return _firsts_of(nodes[1][place]) if np.array_equal(nodes[0][place], ranks) else None


def _found_firsts(comm: MPI.Intracomm, group: MPI.Group) -> NDArray[np.int32]:
    """Collective. The lowest rank of every rank's node, as MPI tells."""
    global _known
    shared: Any = acquired(comm.Split_type, MPI.COMM_TYPE_SHARED, comm.rank)
    first = np.array([comm.rank], np.int32)
    shared.Bcast(first)
    shared.Free()
    firsts: NDArray[np.int32] = words_of_all(comm.size, np.int32)
    comm.Allgather(first, firsts)
    ranks = _world_ranks(group)
    if (_known is None or len(_known[0]) < len(ranks)) and ranks.min() >= 0:
        order = np.argsort(ranks)
        _known = ranks[order], ranks[firsts[order]]
    return firsts


def acquired(make: Callable[..., Any], *given: Any) -> Any:
    """Collective. The window or communicator that ``make`` makes; MPI's refusal in a clear form."""
    try:
        return make(*given)
    except MPI.Exception as error:
        words = error.Get_error_string()
        if "Too many communicators" in str(error) or "context" in str(error).lower():
            raise ResourceError(
                "MPI cannot make another communicator or window (MPICH has about 2,046 of both "
                f"together); free requests that are no longer needed: {words}"
            ) from error
        library = MPI.Get_library_version().splitlines()[0].split(",")[0].strip("\x00 ")
        raise class_of(error)(
            f"{library} cannot make the windows that this method needs ({words}); use p2p or "
            "mpi-persistent"
        ) from error


def _communicator_freed(comm: MPI.Intracomm, attachment: Attachment) -> None:
    """The caller frees the communicator: requests and views of memory keep the context."""
    context, mailbox = attachment.context, attachment.mailbox
    lives = context is not None and context.number in Context._all
    try:
        if context is not None and lives:
            context.drop_shared()
            context.comm.Barrier()  # now every letter has been sent
        if mailbox is not None and comm != MPI.COMM_WORLD:
            mailbox.close(comm)
    finally:
        attachment.context = None
        if context is not None and lives:
            context.orphaned = True
            try:
                context.detach()
            finally:
                context.let_go()


@functools.cache
def _clean_up_at_finalize() -> None:
    """Run the clean-up before MPI_Finalize: at exit, or when the program calls it itself."""
    process = os.getpid()

    def clean_up() -> None:
        if os.getpid() == process:  # a forked child never touches MPI
            _clean_up()

    _hear_of_abort()
    atexit.register(clean_up)
    keyval = MPI.Comm.Create_keyval(delete_fn=lambda *_: clean_up())
    MPI.COMM_SELF.Set_attr(keyval, True)


#: Seconds between two looks for the other ranks at exit, and for which a round may be completed.
_NAP, PATIENCE = 0.0005, 5.0

#: What is left has been freed, where all ranks could.
_ended = False

#: Requests that belong to no context, and are retired where MPI ends before them.
_unattached: weakref.WeakSet[Any] = weakref.WeakSet()


def retire_at_end(request: Any) -> None:
    """Local. Call ``request.retire()`` where MPI ends before the request has been freed."""
    _unattached.add(request)


#: mpi4py is going to abort the job when this process ends.
_aborting = False


def _hear_of_abort() -> None:
    """Local. Know at exit that ``python -m mpi4py`` aborts the job: nobody is to be waited for.

    It does so after a ``sys.exit`` with a status, or an exception, and once Python's own exit
    functions have come back. It tells MPI by this function; the status cannot be asked for
    afterwards (mpi4py 4.1), and Python keeps no trace of a SystemExit.
    """
    told = getattr(MPI, "_set_abort_status", None)
    if told is None:
        return

    def tell(status: int) -> None:
        global _aborting
        _aborting = bool(status)
        told(status)

    MPI._set_abort_status = tell


def _clean_up() -> None:
    """Collective. Free what is left, where all ranks of a communicator can.

    Like MPI_Finalize, which follows, it waits for the other ranks however late they come. A rank
    that ends through an exception, or with a round that is not complete, comes too, and says that
    nothing is to be freed: whether to free is agreed before anybody begins. All questions are
    asked at once, and what is freed is freed in an order that is the same everywhere, because
    ranks may have made their communicators in different orders.
    """
    global _ended
    if not MPI.Is_initialized() or MPI.Is_finalized() or _aborting or _ended:
        return
    with interrupts_later():  # the others would wait for this rank's next question
        deadline = time.monotonic() + PATIENCE
        progress.finish()
        # another thread may be making one
        contexts = sorted(list(Context._all.values()), key=lambda context: context.key)
        failed = hasattr(sys, "last_value")
        while (left := _unfinished(contexts)) and not failed and time.monotonic() < deadline:
            time.sleep(_NAP)
        well = not (failed or left or progress.unfinished())
        questions = [
            _asked(context.comm, well and not context.has_broken()) for context in contexts
        ]
        told = [_asked(MPI.COMM_WORLD, well)] if profiling.wanted() else []
        for _, asked in [*questions, *told]:
            while not asked.Test():
                progress.serve_late()  # for which others wait before they come here
                time.sleep(_NAP)
        if any(answers[1] for answers, _ in told):
            profiling.tell()
        for request in list(_unattached):
            with contextlib.suppress(Exception):
                request.retire()
        for context, (answers, _) in zip(contexts, questions, strict=True):
            if answers[1]:
                with contextlib.suppress(Exception):  # an epoch left open, say: MPI's to clean up
                    context.close()
            for request in context.requests():  # of a context that was not closed
                with contextlib.suppress(Exception):
                    request.retire()
        _ended = True


def _unfinished(contexts: Sequence[Context]) -> bool:
    """Local. Whether MPI may still move data of some round, which it needs its buffers for."""
    requests = [request for context in contexts for request in context.requests()]
    return any([request.complete_at_end() for request in requests
                if request.any_order and not request.filling])  # fmt: skip


def _asked(comm: MPI.Comm, well: bool) -> tuple[bytearray, MPI.Request]:
    """Collective, but for the wait. Whether all ranks are well: the second byte will tell."""
    answers = bytearray([well, 0])
    send, receive = memoryview(answers)[:1], memoryview(answers)[1:]
    return answers, comm.Iallreduce([send, MPI.BYTE], [receive, MPI.BYTE], MPI.BAND)


@contextlib.contextmanager
def interrupts_later(elsewhere: bool = False) -> Iterator[None]:
    """Local. Ctrl-C is handled after the block, in the thread that Python tells of it; or a moment
    later, ``elsewhere``, where nobody would hear of it here."""
    earlier = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(earlier):
        yield
        return
    held: list[Any] = []
    signal.signal(signal.SIGINT, lambda *given: held.append(given))
    try:
        yield
    finally:  # also where the block raises
        signal.signal(signal.SIGINT, earlier)
        if held and elsewhere:
            threading.Timer(0.001, os.kill, (os.getpid(), signal.SIGINT)).start()
        elif held:
            earlier(*held[0])


if profiling.wanted() and MPI.Is_initialized() and not MPI.Is_finalized():
    _clean_up_at_finalize()  # ranks that use nothing of the library are asked for its profile, too
