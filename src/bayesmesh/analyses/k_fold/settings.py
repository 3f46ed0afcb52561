"""Settings of cross-validation by refits."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.config_refit_settings import Folds


class Options(Folds):
    """Log scores of rows under posteriors without them, from one refit for each fold of rows, groups or later times."""

    block_mebibytes: int = Field(
        64, ge=1, le=65536, description="Log likelihoods of all draws at a block of rows in memory at a time, in MiB."
    )
