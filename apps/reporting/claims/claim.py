"""A claim of a paper, and what was found out about it here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from onesided.apps.reporting.result import Result


class Outcome(Enum):
    """A verdict in plain language; the values are what the reader sees."""

    HOLDS = "holds here"
    FAILS = "does not hold here"
    OPEN = "cannot be tested here"

    @classmethod
    def of(cls, holds: bool) -> Outcome:
        """Local. Of a claim that could be tested."""
        return cls.HOLDS if holds else cls.FAILS


@dataclass(frozen=True)
class Finding:
    """A verdict, and the numbers that it rests on; ``variant`` is whose numbers these are."""

    outcome: Outcome
    evidence: str
    variant: str = ""


class Rule(ABC):
    """How a claim is decided by what was measured, and by nothing else."""

    @abstractmethod
    def judge(self, results: Sequence[Result]) -> list[Finding]:
        """Local. At least one finding, from results of one machine and MPI."""


@dataclass(frozen=True)
class Paper:
    """A paper with a short name, and the machine of its measurements."""

    name: str
    title: str
    machine: str


@dataclass(frozen=True)
class Claim:
    """What a paper says, where in it, and the rule that decides."""

    paper: Paper
    where: str
    words: str
    rule: Rule


def untested(reason: str, variant: str = "") -> Finding:
    """Local. A finding for want of measurements."""
    return Finding(Outcome.OPEN, reason, variant)
