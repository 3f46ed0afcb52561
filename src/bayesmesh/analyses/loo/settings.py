"""Settings of leave-one-out cross-validation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bayesmesh.config.config_refit_settings import LeftOut, Refits


class Options(Refits):
    """Leave-one-out predictive density of every row, with Pareto k, and the log score of held-out rows."""

    block_mebibytes: int = Field(
        64, ge=1, le=65536, description="Log likelihoods of all draws at a block of rows in memory at a time, in MiB."
    )
    moment_matching_rows: int = Field(
        10,
        ge=0,
        le=100_000,
        description="Rows with the highest Pareto k, above its limit, that are repaired by moment matching; each evaluates the "
        "density of all rows at all draws some ten times. 0 for none.",
    )
    refit: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (),
        max_length=1000,
        description="Numbers of rows, from 0 in the order of the training data, without each of which the experiment is sampled "
        "again, so that their scores need no importance weights: those whose Pareto k stays high.",
    )

    def left_out(self) -> dict[str, LeftOut]:
        """Return the rows without which the experiment is sampled again."""
        return {f"without-row-{row}": LeftOut(rows=(row,)) for row in self.refit}
