"""Arguments of the programs of a chain group, and the chains that the programs pass on."""

from __future__ import annotations

from typing import Any, NamedTuple

from bayesmesh.kernels.base import Position


class GroupKey(NamedTuple):
    """Source of the randomness of a chain group: the root seed and the absolute number of its first chain."""

    seed: int
    first_chain: int


class Arguments(NamedTuple):
    """Numbers of a run that are arguments of its programs.

    Attributes:
        seed, first_chain: () uint32, from a `GroupKey`.
        attempt: (chain,) uint32, which of its possible starting points a chain takes.
        num_warmup: () int32.
        spread, widening, learning_rate: () float64, of the starting points.
        center: (chain, ...) points around which the chains start; None for the origin.
        model, kernel: numeric options, () float64 or int64.
    """

    seed: Any
    first_chain: Any
    attempt: Any
    num_warmup: Any
    spread: Any
    widening: Any
    learning_rate: Any
    center: Position | None
    model: dict[str, Any]
    kernel: dict[str, Any]


class ChainState(NamedTuple):
    """The chains of a group and the adaptation of their kernel; this alone is the checkpoint."""

    kernel: Any
    adaptation: Any
