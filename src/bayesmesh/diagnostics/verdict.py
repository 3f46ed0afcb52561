"""Write and read ``verdict.json``, the verdict on a posterior; no other module does."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    computed_field,
)

from bayesmesh.errors import StoreError
from bayesmesh.files import read_json, write_json

_REMEDY = "delete it and run the diagnose stage again"

Outcome = Literal["pass", "warn", "fail"]

Number = Annotated[
    float,
    BeforeValidator(lambda value: math.nan if value is None else value),
    PlainSerializer(lambda value: value if math.isfinite(value) else None, when_used="json"),
]
"""A float; NaN becomes null in strict JSON."""


class _Record(BaseModel):
    """Part of ``verdict.json``; unknown keys, from other versions, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class GateResult(_Record):
    """One gate: its worst value, the position of that value, and the outcome; a non-finite value never passes.

    Attributes:
        found: the finding, in words; another version may have the whole message here.
        notes: further remarks, such as the cause.
        hint: remedies in brief.
        follows: name of another gate, whose finding explains why this one is missed, and whose remedies apply instead.
        beyond_draws: whether chains of any length would disagree.
    """

    name: str
    limit: float
    direction: Literal["at most", "at least"]
    value: Number
    where: str
    severity: Literal["warn", "fail"]
    verdict: Outcome
    found: str = Field(validation_alias=AliasChoices("found", "message"))
    notes: tuple[str, ...] = ()
    hint: str = ""
    follows: str = ""
    beyond_draws: bool = False

    @computed_field  # type: ignore[prop-decorator]  # as Pydantic documents
    @property
    def message(self) -> str:
        """Finding, notes and hint, in one line."""
        return "; ".join(filter(None, (self.found, *self.notes, self.hint)))


class NumCoordinates(_Record):
    """Numbers of coordinates: of summaries, of latents, and listed in ``summary.csv``, which lists summaries first.

    Gates leave out `fixed` summaries, which no latent changes.
    """

    summaries: int
    latents: int
    listed: int
    fixed: int = 0


class Listed(_Record):
    """Numbers of coordinates of a latent: in total, and in ``summary.csv``."""

    total: int
    listed: int


class Verdict(_Record):
    """Content of ``verdict.json``; a statistic that the kernel does not record is None or NaN."""

    verdict: Outcome
    gates: tuple[GateResult, ...]
    experiment: str
    num_chains: int
    num_draws: int
    num_coordinates: NumCoordinates
    latents: dict[str, Listed]
    num_divergences: int | None
    """Draws in which any trajectory diverged."""
    divergence_share: Number
    """Divergent share of all trajectories; most kernels take one per draw."""
    bfmi: tuple[Number, ...]
    acceptance_rate: float | None
    num_restarted: int = 0
    """Chains that warmup found in a mode of negligible mass and restarted at the positions of others."""
    raised_target_acceptance: float | None = None
    """Target acceptance to which warmup finally adapted the step size, if that is above the kernel's option."""
    is_adjusted: bool = True
    """Whether the kernel has an accept step; without one, draws are biased, and the gate `accept_step` warns."""
    num_populations: int = 0
    """Independent populations that the chains are, one per chain group; 0 if chains are independent."""
    datasets: dict[Outcome, int] | None = None
    """For many datasets, the number with each verdict; gates and verdict are then the worst of all datasets."""

    @property
    def missed(self) -> tuple[GateResult, ...]:
        """Gates that do not pass, failures before warnings."""
        return tuple(sorted((g for g in self.gates if g.verdict != "pass"), key=lambda g: g.verdict != "fail"))

    def gate(self, name: str) -> GateResult | None:
        """Return a gate by name."""
        return next((g for g in self.gates if g.name == name), None)


def overall(gates: Iterable[GateResult]) -> Outcome:
    """Return the worst outcome of all gates."""
    found = {gate.verdict for gate in gates}
    return "fail" if "fail" in found else "warn" if "warn" in found else "pass"


def write_verdict(path: Path, verdict: Verdict) -> None:
    """Write ``verdict.json`` atomically."""
    write_json(path, verdict.model_dump(mode="json"))


def read_verdict(path: Path) -> Verdict:
    """Return the content of ``verdict.json``.

    Raises:
        StoreError: the file is missing or damaged.
    """
    try:
        return Verdict.model_validate(read_json(path, _REMEDY))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise StoreError(f"{path}: is damaged: {where}: {first['msg']}", _REMEDY) from error
