"""Settings of leave-one-out cross-validation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bayesmesh.config.config_refit_settings import LeftOut, Refits


class Options(Refits):
    """Leave-one-out predictive density of every row, with Pareto k, and the log score of held-out rows."""

    block_mebibytes: int = Field(
        64, ge=1, le=65536, description="Memory for the log likelihoods of all draws at one block of rows, in MiB."
    )
    moment_matching_rows: int = Field(
        10,
        ge=0,
        le=100_000,
        description="Maximum number of rows to repair by moment matching: those with the highest Pareto k above its "
        "limit. Each takes some ten evaluations of the density of all rows at all draws. 0 repairs none.",
    )
    refit: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (),
        max_length=1000,
        description="Rows to leave out one at a time, such as those whose Pareto k stays high, numbered from 0 in the "
        "order of the training data. The experiment is sampled again without each row, so that its score needs no "
        "importance weights.",
    )

    def left_out(self) -> dict[str, LeftOut]:
        """Return the rows without which the experiment is sampled again."""
        return {f"without-row-{row}": LeftOut(rows=(row,)) for row in self.refit}
