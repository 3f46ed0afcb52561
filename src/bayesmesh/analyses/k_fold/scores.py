"""Score the rows that each refit left out under its draws, and join the rows of all in the order of the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np

from bayesmesh.analyses._draw_blocks import training_outcomes
from bayesmesh.analyses._likelihood import RowLikelihood, check_rows
from bayesmesh.analyses._refit_scores import RefitRows, check_outcomes, score_held_out, score_refit
from bayesmesh.analyses.base import BoundModel, Subject
from bayesmesh.analyses.k_fold.joint import KEY, score_whole_folds
from bayesmesh.analyses.k_fold.tables import Fold, write_tables
from bayesmesh.analyses.options import KFoldOptions as Options
from bayesmesh.data.shards import Shards
from bayesmesh.store.scores import POINTWISE, RowScores, digest_outcomes, write_pointwise


def score_folds(subject: Subject, refits: Mapping[str, Subject], options: Options, files: Mapping[str, Path]) -> str:
    """Write scores and tables, and return the sum as text; only one block of rows at all draws is in memory.

    Args:
        subject: the whole experiment, whose own held-out rows are scored too.
        refits: name -> refit, in the order of the folds.
        options: how rows are left out, and the size of a block.
        files: paths of the outputs.

    Raises:
        ConfigError: single rows of this model cannot be left out, or its outcome depends on the rows that stay.
        StoreError: a refit does not say which rows it leaves out.
    """
    jax.config.update("jax_enable_x64", True)
    model = subject.bound.model
    if model.reads_whole(model.options):
        return score_whole_folds(subject, refits, words(options), files, is_series=options.future is not None)
    check_rows(KEY, subject.bound.model, subject.bound.data_spec)
    block_bytes = options.block_mebibytes * 2**20
    parts = [score_refit(KEY, refit, block_bytes) for refit in refits.values()]
    folds = [_describe(refit, rows) for refit, rows in zip(refits.values(), parts, strict=True)]
    group = options.group
    groups = None if group is None else np.concatenate([_groups(refit, group) for refit in refits.values()])
    left_out = _join(subject.bound, parts, words(options), groups)
    likelihood = RowLikelihood(KEY, subject.bound.model, subject.bound.data_spec, subject.posterior, block_bytes)
    held_out = score_held_out(likelihood, subject.bound.shards)
    write_pointwise(files[POINTWISE], left_out, held_out)
    tables = files["k_fold.csv"], files["folds.csv"]
    return write_tables(*tables, left_out, held_out, folds, len(left_out.elpd))


def words(options: Options) -> str:
    """Return how rows are left out; equal for equal folds of the same rows.

    >>> words(Options(folds=4, group="school"))
    "4 folds of whole groups by 'school', seed 0"
    """
    if options.future is not None:
        share = f"{100 * options.first_share:g}% of the rows"
        return f"{options.folds} folds by '{options.future}' after the first {share}, each predicted from earlier rows"
    if options.group is not None:
        return f"{options.folds} folds of whole groups by '{options.group}', seed {options.seed}"
    even = f" with even shares of '{options.strata}'" if options.strata is not None else ""
    return f"{options.folds} random folds{even}, seed {options.seed}"


def _describe(refit: Subject, rows: RefitRows) -> Fold:
    counts = len(rows.row), refit.bound.shards.num_observations
    return Fold(rows.experiment, *counts, float(rows.elpd.sum()), rows.sum_mcse, *rows.joint, rows.verdict)


def _groups(refit: Subject, group: str) -> np.ndarray:
    """Return the group of each row that was left out, as the source has it, whatever fields the model prepares."""
    held_out = Shards(refit.bound.shards.path).held_out()
    assert isinstance(held_out, dict)  # `shard` refuses all else
    return np.asarray(held_out[group])


def _join(bound: BoundModel, parts: list[RefitRows], scheme: str, groups: np.ndarray | None) -> RowScores:
    """Return the scores of all folds in the order of the data; `groups` are those of the rows in the order of the folds.

    Raises:
        ConfigError: outcomes differ from those of the whole experiment.
    """
    rows = np.concatenate([part.row for part in parts])
    order = np.argsort(rows)
    elpd, mcse, outcome = (
        np.concatenate(found)[order] for found in zip(*((p.elpd, p.mcse, p.outcome) for p in parts), strict=True)
    )
    check_outcomes(KEY, bound.model, rows[order], outcome, training_outcomes(KEY, bound)[rows[order]])
    is_all = len(rows) == bound.shards.num_rows
    cluster = None if groups is None else np.unique(groups[order], return_inverse=True)[1]
    about = (digest_outcomes(outcome), outcome.dtype.kind in "iub", min(part.num_draws for part in parts))
    failed = tuple(part.experiment for part in parts if part.verdict == "fail")
    # Each fold has its own draws, so errors are independent.
    sum_mcse = math.hypot(*(part.sum_mcse for part in parts))
    return RowScores(
        elpd, *about, mcse=mcse, row=None if is_all else rows[order], cluster=cluster, scheme=scheme, failed=failed,
        sum_mcse=sum_mcse,
    )  # fmt: skip
