"""The results in a folder: which files they are, and what to do about others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onesided.apps.failures import CommandError, words
from onesided.apps.reporting.result import PARTS, Result

#: A file with fewer of the parts of an envelope is none of ours.
ENOUGH = 3
LARGEST = 1e60  # numbers that are not smaller are taken for none


@dataclass(frozen=True)
class Findings:
    """The results of a folder in order of their files, and which JSON files are none."""

    results: Sequence[Result]
    left_out: Sequence[str]


def findings(path: str) -> Findings:
    """Local. What is in a folder; its own folders are not looked into.

    An empty file, of a command that did not come to its end, is left out, as one of others is.
    :class:`CommandError` where there is no result, and for a file that is broken or of another
    version: what was measured would be missing.
    """
    folder = Path(path)
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "No such folder"
        raise CommandError(f"{path}: {what}")
    try:
        files = sorted(each for each in folder.glob("*.json") if each.is_file())
    except OSError as error:
        raise CommandError(words(error)) from error
    results, left_out = [], []
    for file in files:
        text = _text(file)
        content = _content(file, text) if text.strip() else None
        if content is not None and _is_ours(content):
            results.append(Result.of(file.name, content))
        else:
            why = "no result" if text.strip() else "empty, its command did not come to its end"
            left_out.append(f"{file.name} ({why})")
    if not results:
        others = f" but {', '.join(left_out)}" if left_out else ""
        raise CommandError(
            f"{path}: no results in this folder{others}; commands write them with --json FILE"
        )
    return Findings(results, left_out)


def groups(results: Sequence[Result], *, mixed: bool) -> list[Sequence[Result]]:
    """Local. The results of one machine and MPI each, in the order in which they come first.

    What is no measurement, such as predictions, goes with the first of them.
    :class:`CommandError` where there are several, and they are not to be ``mixed``.
    """
    found: dict[tuple[str, str, str], list[Result]] = {}
    others = [result for result in results if not result.machine]
    for result in results:
        if result.machine:
            found.setdefault(result.place, []).append(result)
    if len(found) > 1 and not mixed:
        told = "; ".join(
            f"{each[0].name}: {library} on {processor} ({system})"
            for (system, processor, library), each in found.items()
        )
        raise CommandError(
            f"results of {len(found)} different machines or MPIs (--mixed groups them): {told}"
        )
    first, *rest = found.values() or [[]]
    return [[*first, *others], *rest]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(words(error)) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{file}: no text in UTF-8 (byte {error.start})") from error


def _content(file: Path, text: str) -> Any:
    try:
        return json.loads(
            text, parse_int=_number(int), parse_float=_number(float), parse_constant=lambda _: None
        )
    except json.JSONDecodeError as error:
        raise CommandError(f"{file}: broken JSON, line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # lists too deep
        raise CommandError(f"{file}: broken JSON: {words(error)}") from error


def _number(kind: type[int] | type[float]) -> Callable[[str], int | float | None]:
    """How a number is read: none that is not a number, and none beyond all that is measured."""

    def read(text: str) -> int | float | None:
        return kind(text) if abs(float(text)) < LARGEST else None

    return read


def _is_ours(content: Any) -> bool:
    if not isinstance(content, dict):
        return False
    return sum(part in content for part in (*PARTS, "machine")) >= ENOUGH
