"""Score the rows that each refit left out under its draws, and join the rows of all in the order of the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from bayesmesh.analyses._row_likelihood import (
    RowLikelihood,
    check_rows,
    held_out_blocks,
    relative_efficiency,
    score_held_out,
)
from bayesmesh.analyses.base import BoundModel, Subject, asking_model, unsuitable
from bayesmesh.analyses.k_fold.fold_tables import Fold, write_tables
from bayesmesh.analyses.k_fold.settings import Options
from bayesmesh.data.shards import BLOCK_ROWS, Shards
from bayesmesh.diagnostics.verdict import read_verdict
from bayesmesh.errors import StoreError
from bayesmesh.store.pointwise import POINTWISE, RowScores, digest_outcomes, write_pointwise

KEY = "k_fold"


class FoldRows(NamedTuple):
    """The rows that one refit left out, in the order of the data.

    Attributes:
        row: (row,) int64, numbers among the training rows of the whole experiment.
        elpd, mcse: (row,) log score, in nats, and its Monte Carlo standard error.
        outcome: (row, ...), as the model of the refit has it.
        cluster: (row,) values of the field of groups; zeros without one.
        num_draws: of the refit.
    """

    row: np.ndarray
    elpd: np.ndarray
    mcse: np.ndarray
    outcome: np.ndarray
    cluster: np.ndarray
    num_draws: int


def score_folds(subject: Subject, refits: Mapping[str, Subject], options: Options, files: Mapping[str, Path]) -> str:
    """Write scores and tables, and return the sum as text; only a block of rows is in memory at all draws.

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
    check_rows(KEY, subject.bound.model, subject.bound.data_spec)
    block_bytes = options.block_mebibytes * 2**20
    parts: list[FoldRows] = []
    folds: list[Fold] = []
    for refit in refits.values():
        rows, fold = _score_fold(refit, block_bytes, options.group)
        parts.append(rows)
        folds.append(fold)
    failed = tuple(fold.experiment for fold in folds if fold.verdict == "fail")
    left_out = _join(subject.bound, parts, options, failed)
    likelihood = RowLikelihood(KEY, subject.bound.model, subject.bound.data_spec, subject.posterior, block_bytes)
    held_out = score_held_out(likelihood, subject.bound.shards)
    write_pointwise(files[POINTWISE], left_out, held_out)
    return write_tables(files["k_fold.csv"], files["folds.csv"], left_out, held_out, folds)


def words(options: Options) -> str:
    """Return how rows are left out; equal for equal folds of the same rows."""
    if options.future is not None:
        share = f"{options.first_share:.0%} of the rows"
        return f"{options.folds} folds by '{options.future}' after the first {share}, each predicted from earlier rows"
    if options.group is not None:
        return f"{options.folds} folds of whole groups by '{options.group}', seed {options.seed}"
    even = f" with even shares of '{options.strata}'" if options.strata is not None else ""
    return f"{options.folds} random folds{even}, seed {options.seed}"


def _score_fold(refit: Subject, block_bytes: int, group: str | None) -> tuple[FoldRows, Fold]:
    """Return the scores of the rows that a refit left out."""
    model, spec, shards = refit.bound
    rows = shards.left_out()
    if rows is None:
        raise StoreError(f"{shards.path}: does not say which rows were left out", "run the shard stage again")
    likelihood = RowLikelihood(KEY, model, spec, refit.posterior, block_bytes)
    scored: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    joint = np.zeros((refit.posterior.num_chains, refit.posterior.num_draws))
    for block in held_out_blocks(likelihood, shards):
        values = np.moveaxis(block.log_likelihood, -1, 0)
        joint += values.sum(axis=0)
        scored.append((*log_mean_density(values), block.outcome))
    total, error = (each[0] for each in log_mean_density(joint[None]))
    elpd, mcse, outcome = map(np.concatenate, zip(*scored, strict=True))
    verdict = read_verdict(refit.layout.verdict).verdict if refit.layout.verdict.exists() else "unknown"
    fold = Fold(refit.name, len(rows), shards.num_observations, float(elpd.sum()), float(total), float(error), verdict)
    # As the source has it, whatever fields the model has prepared.
    held_out = Shards(shards.path).held_out() if group is not None else None
    cluster = held_out[group] if isinstance(held_out, dict) and group is not None else np.zeros(len(rows))
    return FoldRows(rows, elpd, mcse, outcome, cluster, likelihood.num_draws), fold


def log_mean_density(
    log_density: Float[np.ndarray, "row chain draw"],
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Return the logarithm of the mean density over draws, and its Monte Carlo standard error (delta method).

    Args:
        log_density: of each row at each draw, float64, in nats.

    Returns:
        Both (row,). Of a row with a value that is not a number, or minus infinity at all draws, minus infinity and infinity.

    >>> log_mean_density(np.log(np.array([[[0.1, 0.3]]])))[0].round(4)
    array([-1.6094])
    """
    flat = log_density.reshape(len(log_density), -1)
    is_usable = ~np.isnan(flat).any(axis=1) & (flat.max(axis=1) > -np.inf)
    found = np.full((2, len(flat)), np.inf) * np.array([[-1.0], [1.0]])
    if is_usable.any():
        some = flat[is_usable]
        score = logsumexp(some, axis=1) - math.log(some.shape[1])
        # The density of a draw divided by the mean density: at most the number of draws.
        relative = np.exp(some - score[:, None])
        size = some.shape[1] * relative_efficiency(log_density[is_usable])
        found[:, is_usable] = score, relative.std(axis=1) / np.sqrt(size)
    return found[0], found[1]


def _join(bound: BoundModel, parts: list[FoldRows], options: Options, failed: tuple[str, ...]) -> RowScores:
    """Return the scores of all folds in the order of the data.

    Raises:
        ConfigError: outcomes are not those of the whole experiment.
    """
    rows = np.concatenate([part.row for part in parts])
    order = np.argsort(rows)

    def joined(name: str) -> np.ndarray:
        return np.asarray(np.concatenate([getattr(part, name) for part in parts])[order])

    outcome, own = joined("outcome"), _own_outcomes(bound)[rows[order]]
    if not np.array_equal(outcome, own):
        row = int(np.argmin((outcome == own).reshape(len(own), -1).all(axis=1)))
        problem = (
            f"model {type(bound.model).__name__} has outcome {outcome[row]} in row {rows[order][row]} without the fold"
        )
        raise unsuitable(
            KEY, f"{problem}, and {own[row]} with it: its unit depends on the rows from which it is sampled"
        )
    is_all = len(rows) == bound.shards.num_rows
    cluster = np.unique(joined("cluster"), return_inverse=True)[1] if options.group is not None else None
    num_draws = min(part.num_draws for part in parts)
    about = (digest_outcomes(outcome), outcome.dtype.kind in "iub", num_draws)
    return RowScores(
        joined("elpd"), *about, mcse=joined("mcse"), row=None if is_all else rows[order], cluster=cluster,
        scheme=words(options), failed=failed,
    )  # fmt: skip


def _own_outcomes(bound: BoundModel) -> np.ndarray:
    """Return the outcomes of all training rows, in the order of the data."""
    model, _, shards = bound
    outcomes = []
    for start in range(0, shards.num_rows, BLOCK_ROWS):
        rows = shards.read_rows(start, min(shards.num_rows, start + BLOCK_ROWS))
        with asking_model(KEY, model, list(rows)):
            outcomes.append(np.asarray(model.outcome({name: jnp.asarray(values) for name, values in rows.items()})))
    return np.concatenate(outcomes)[np.argsort(shards.source_rows())]
