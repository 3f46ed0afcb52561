"""The looks of a rule for stopping, as ``looks.json`` and the manifest of a chain group hold them."""

from __future__ import annotations

from typing import TypedDict

from bayesmesh.files import JSON

__all__ = ["Look", "StopRecord", "TargetEntry"]


class TargetEntry(TypedDict):
    """One target of a look: its key, its limit, the worst value (None where not finite), its place, and the outcome."""

    name: str
    target: float
    value: float | None
    where: str
    is_met: bool


class Look(TypedDict):
    """One look: draws per chain, seconds it took, summaries read, and its targets."""

    draws: int
    seconds: float
    is_met: bool
    judged: list[str]
    targets: list[TargetEntry]


class StopRecord(TypedDict):
    """The looks of a chain group under a rule for stopping.

    Attributes:
        rule: targets and times of looks, with the limit of draws.
        decided_by: scope of the rule.
        reason: ``met``, ``draws`` or ``seconds``; empty while sampling goes on.
        num_draws: draws per chain, the limit while sampling goes on.
        look_seconds, sampling_seconds: wall time.
    """

    rule: dict[str, JSON]
    decided_by: str
    looks: list[Look]
    num_draws: int
    reason: str
    look_seconds: float
    sampling_seconds: float
