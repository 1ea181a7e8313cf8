"""What was measured, kept for later runs: a file of decisions about tasks.

Decisions belong to the machine's processor and the versions of the kernels that were compared;
where these differ, others are used and kept beside them.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.collectives.hardware import kept_file, processor, replace_file
from onesided.pencilfft.kernels.registry import versions

#: Environment variable with the file to use in place of the default one, or "off".
VARIABLE = "ONESIDED_WISDOM"
FORMAT = "onesided wisdom 3"

#: Decisions that a file keeps: the latest.
MOST_DECISIONS = 2000

#: Seconds after which a decision is made anew: what a busy machine has taught does not stay.
MOST_AGE = 90 * 86400.0


class Decision(NamedTuple):
    """Local. What was chosen, and when, in seconds since 1970."""

    choice: str
    seconds: float


#: Machine, versions of the kernels, and task -> decision; the latest ones last.
Decisions = dict[str, Decision]


class Wisdom:
    """Local. The decisions of one file, read when first asked for; None is no file, and none.

    Several processes may use the file at the same time: each replaces it as a whole, so that a
    reader never sees half of it. What another one learnt at the same moment may be lost and is
    then measured again.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = None if path is None else Path(path)
        self._decisions: Decisions | None = None
        self._learnt: Decisions = {}

    def recall(self, task: str) -> str | None:
        """Local. The kernel that was chosen for ``task`` on such a machine, not too long ago."""
        if self.path is None:
            return None
        key = _key(task)
        found = self._learnt.get(key) or self._known().get(key)
        if found is None or time.time() - found.seconds > MOST_AGE:
            return None
        return found.choice

    def learn(self, task: str, choice: str) -> None:
        """Local. Remember a decision, until :meth:`keep` in this process only."""
        if self.path is not None:
            self._learnt[_key(task)] = Decision(choice, time.time())

    def news(self) -> Decisions:
        """Local. What was learnt and is not in the file; from now on it counts as if it were."""
        learnt, self._learnt = self._learnt, {}
        self._decisions = _merged(self._known(), learnt)
        return learnt

    def decisions(self) -> Decisions:
        """Local. All decisions."""
        return _merged(self._known(), self._learnt)

    def keep(self, news: Iterable[Decisions] = ()) -> None:
        """Local. Write what is new, here and elsewhere, beside what is in the file by now; nothing
        new, no writing.

        A file that cannot be written is a warning, and the decisions stay in this process.
        """
        for decisions in news:
            self._learnt = _merged(self._learnt, decisions)
        if not self._learnt or self.path is None:
            return
        merged = dict([*_merged(self._read(), self._learnt).items()][-MOST_DECISIONS:])
        try:
            write_decisions(self.path, merged)
        except OSError as error:
            warnings.warn(f"wisdom is not kept: {error}", RuntimeWarning, stacklevel=2)
            return
        self._decisions, self._learnt = merged, {}

    def forget(self) -> None:
        """Local. Drop all decisions and remove the file."""
        self._decisions, self._learnt = {}, {}
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _known(self) -> Decisions:
        if self._decisions is None:
            self._decisions = self._read()
        return self._decisions

    def _read(self) -> Decisions:
        """The decisions of the file; none, with a warning, where it is something else."""
        try:
            return {} if self.path is None else read_decisions(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, PatternError) as error:
            warnings.warn(f"wisdom is ignored: {error}", RuntimeWarning, stacklevel=2)
            return {}


#: What a plan may be given: the wisdom itself, a path, False for none, None for the default file.
WisdomName = Wisdom | str | os.PathLike[str] | bool | None


def open_wisdom(wisdom: WisdomName = None) -> Wisdom:
    """Local. The wisdom of a plan: itself, a path, False for none, None for the default file.

    The default is the file that the environment variable ``ONESIDED_WISDOM`` names, none where
    that is "off", else ``onesided/wisdom.json`` in the user's cache directory.
    """
    if isinstance(wisdom, Wisdom):
        return wisdom
    if wisdom is None or wisdom is True:
        return _wisdom_at(kept_file(VARIABLE, "wisdom.json"))
    return _wisdom_at(Path(wisdom).absolute() if wisdom else None)


def export_wisdom(path: str | os.PathLike[str]) -> None:
    """Local. Write the default wisdom, with what this process learnt, to a file.

    Raises :class:`UnsupportedError` where wisdom is off, :class:`OSError` where the file cannot
    be written.

    Examples
    --------
    >>> import tempfile
    >>> folder = comm.bcast(tempfile.mkdtemp())
    >>> export_wisdom(f"{folder}/wisdom.json") if comm.rank == 0 else None
    """
    write_decisions(Path(path), _default().decisions())


def import_wisdom(path: str | os.PathLike[str]) -> None:
    """Local. Add the decisions of an exported file to the default wisdom, and save it.

    Raises :class:`PatternError` for a file that is no wisdom, :class:`OSError` for one that
    cannot be read, :class:`UnsupportedError` where wisdom is off.

    Examples
    --------
    >>> import tempfile
    >>> folder = comm.bcast(tempfile.mkdtemp())
    >>> if comm.rank == 0:
    ...     export_wisdom(f"{folder}/wisdom.json")
    ...     import_wisdom(f"{folder}/wisdom.json")
    """
    wisdom = _default()
    wisdom.keep([read_decisions(Path(path))])


def forget_wisdom() -> None:
    """Local. Remove the default wisdom, file and all; nothing where wisdom is off.

    Examples
    --------
    >>> forget_wisdom()
    """
    open_wisdom().forget()


def read_decisions(path: Path) -> Decisions:
    """Local. The decisions in a file; raises :class:`PatternError` where it is no wisdom."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PatternError(f"{path} is no wisdom: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise PatternError(f"{path} is no wisdom: its format is not {FORMAT!r}")
    try:
        return {key: _decision(*words) for key, words in content["decisions"].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PatternError(f"{path} is no wisdom: its decisions are not [choice, time]") from error


def write_decisions(path: Path, decisions: Decisions) -> None:
    """Local. Replace the file as a whole; raises :class:`OSError`."""
    replace_file(path, {"format": FORMAT, "decisions": decisions})


def _decision(choice: Any, seconds: Any) -> Decision:
    if not isinstance(choice, str):
        raise TypeError(f"{choice!r} is no text")
    return Decision(choice, float(seconds))


def _merged(old: Decisions, new: Decisions) -> Decisions:
    """What is new comes last."""
    return {key: old[key] for key in old if key not in new} | new


def _default() -> Wisdom:
    wisdom = open_wisdom()
    if wisdom.path is None:
        raise UnsupportedError(f"wisdom is off: {VARIABLE}, or there is no home directory")
    return wisdom


#: The wisdom of a file, or of none, one for all plans of the process.
_wisdom_at = cache(Wisdom)


def _key(task: str) -> str:
    """Of a decision: processor and kernels, which it holds for, and the task."""
    return f"{_machine()}; {task}"


@cache
def _machine() -> str:
    return f"{processor()}; {versions()}"
