"""Settings of cross-validation by refits."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.config_refit_settings import Folds


class Options(Folds):
    """Log scores of rows under posteriors fitted without them, from one refit per fold of rows, groups or later times."""

    block_mebibytes: int = Field(
        64, ge=1, le=65536, description="Memory for the log likelihoods of all draws at one block of rows, in MiB."
    )
