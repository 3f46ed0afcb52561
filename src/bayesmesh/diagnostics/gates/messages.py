"""The words of each gate: for its message, for the tables of a page, and for the remedies when it is missed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import yaml

from bayesmesh.diagnostics.verdict import GateResult, Outcome

Direction = Literal["at most", "at least"]


class Wording(NamedTuple):
    """Words of a gate.

    Attributes:
        title: statistic, in a sentence.
        label: worst value of the statistic, as a heading.
        short: statistic, in a list.
        direction: side of the limit.
        hint: remedies in brief, for the message.
        remedies: remedies for the page.
    """

    title: str
    label: str
    short: str
    direction: Direction
    hint: str
    remedies: Sequence[str]


_FILE = Path(__file__).with_name("wordings.yaml")

WORDINGS = {name: Wording(**words) for name, words in yaml.safe_load(_FILE.read_text(encoding="utf-8")).items()}
"""Name of a gate -> its words."""


def missed_gate(
    name: str,
    outcome: Outcome,
    value: float,
    limit: float,
    where: str,
    found: str,
    *,
    hint: str | None = None,
    beyond_draws: bool = False,
) -> GateResult:
    """Return the result of a gate that exists only if it is missed; its hint is that of the gate by default."""
    words, severity = WORDINGS[name], "fail" if outcome == "fail" else "warn"
    return GateResult(
        name=name, limit=limit, direction=words.direction, value=value, where=where, severity=severity, verdict=outcome,
        found=found, hint=words.hint if hint is None else hint, beyond_draws=beyond_draws,
    )  # fmt: skip


def place_of(variable: str, index: str, label: str) -> str:
    """Return the name of a coordinate, by its label if it has one.

    >>> place_of("mean", "", ""), place_of("b", "0,1", ""), place_of("b", "0,1", "elm,x")
    ('mean', 'b[0,1]', 'b[elm,x]')
    """
    return f"{variable}[{label or index}]" if label or index else variable


def without_kernel(advice: Sequence[str], kernel: str) -> list[str]:
    """Return the pieces of advice that do not name the kernel in use.

    >>> without_kernel(["run longer", "use the kernel replica_exchange"], "replica_exchange")
    ['run longer']
    """
    return [each for each in advice if not kernel or not re.search(rf"\b{re.escape(kernel)}\b", each)]


def wording(name: str) -> Wording:
    """Return the words of a gate; for one that only another version has, words made from its name."""
    plain = name.replace("_", " ")
    remedy = "Use more draws, a longer warmup, or another parametrisation of the model; then check the same gate again."
    return WORDINGS.get(name) or Wording(plain, plain.capitalize(), plain, "at most", "", (remedy,))
