"""What can go wrong, one class per kind of mistake.

Errors found at initialization are agreed: every rank of the communicator raises the same class
with the same words (:mod:`onesided.collectives.agreement`). Errors in the use of a request
(:class:`RequestError`) are local.
"""


class OnesidedError(Exception):
    """Base of all errors that this package raises on purpose."""


class RequestError(OnesidedError, RuntimeError):
    """A call that the state of the request does not allow (MPI-4.1 section 7.13)."""


class PatternError(OnesidedError, ValueError):
    """Counts, displacements, boxes, types or buffers that do not fit each other."""


class MethodError(OnesidedError, ValueError):
    """No transport has this name."""


class UnsupportedError(OnesidedError, NotImplementedError):
    """The transport or call exists, but not on this MPI, or not for this pattern."""


class ResourceError(OnesidedError, MemoryError):
    """Shared memory, windows or communicators have run out."""


class MismatchError(OnesidedError, RuntimeError):
    """Ranks of one communicator called different collective functions at the same time."""


class BroadcastError(OnesidedError, RuntimeError):
    """A passive broadcast cannot be completed, because a rank has failed or left."""
