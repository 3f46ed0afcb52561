"""Score each fold as one, under a model that takes all rows as one: the density of the fold given the rows that stay.

At a draw of a refit, this density is the likelihood of the fold and the rows that stay, divided by that of the rows
that stay. Its mean over the draws is the predictive density of the fold. Terms that do not depend on the fold, such as
a prior, cancel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from bayesmesh.analyses._refit_scores import log_mean_density
from bayesmesh.analyses.base import BoundModel, Subject, draw_shapes, unsuitable
from bayesmesh.analyses.k_fold.joint_models import KEY, SomeRows, log_ratios
from bayesmesh.analyses.k_fold.tables import Fold, write_tables
from bayesmesh.diagnostics.verdict import read_verdict
from bayesmesh.errors import StoreError
from bayesmesh.store.scores import POINTWISE, RowScores, digest_outcomes, write_pointwise

WIDE = "float64"
"""Dtype of likelihoods: the log density of few rows is the difference of two log densities of many."""


def score_whole_folds(
    subject: Subject, refits: Mapping[str, Subject], scheme: str, files: Mapping[str, Path], *, is_series: bool
) -> str:
    """Write scores and tables, and return the sum as text.

    Args:
        subject: the whole experiment.
        refits: name -> refit, in the order of the folds.
        scheme: how rows are left out, in words.
        files: paths of the outputs.
        is_series: whether the rows of each refit are those of the previous refit and its fold.

    Raises:
        ConfigError: the latents of a refit are not those of the model of all rows.
        StoreError: a refit does not say which rows it leaves out, or they are of other data.
    """
    chain = [*refits.values(), subject]
    # The rows that stay and the fold together: all rows, or for a series the rows of the next refit.
    larger = chain[1:] if is_series else [subject] * len(refits)
    folds, rows = [], []
    for refit, other in zip(refits.values(), larger, strict=True):
        left_out = refit.bound.shards.left_out()
        if left_out is None:
            path = refit.bound.shards.path
            raise StoreError(f"{path}: does not say which rows were left out", "run the shard stage again")
        rows.append(left_out)
        folds.append(_score(refit, other, len(left_out)))
    digest, is_discrete = _outcomes(subject.bound, np.sort(np.concatenate(rows)))
    scores = RowScores(
        np.array([fold.joint_elpd for fold in folds]), digest, is_discrete,
        min(refit.posterior.num_chains * refit.posterior.num_draws for refit in refits.values()),
        mcse=np.array([fold.joint_mcse for fold in folds]), scheme=f"{scheme}, each fold scored as one",
        failed=tuple(fold.experiment for fold in folds if fold.verdict == "fail"),
    )  # fmt: skip
    write_pointwise(files[POINTWISE], scores, None)
    return write_tables(files["k_fold.csv"], files["folds.csv"], scores, None, folds, sum(map(len, rows)))


def _score(refit: Subject, larger: Subject, num_left_out: int) -> Fold:
    """Return the score of a fold under the draws without it."""
    bounds = larger.bound, refit.bound
    counts = [bound.shards.num_observations for bound in bounds]
    if counts[0] != counts[1] + num_left_out:
        problem = f"{counts[1]} rows of '{refit.name}' and {num_left_out} that it leaves out are not the {counts[0]} of '{larger.name}'"
        raise StoreError(f"{bounds[1].shards.path}: {problem}", "run the shard stage again")
    found, own = (draw_shapes(each.posterior, WIDE) for each in (larger, refit))
    if differing := sorted(name for name in own if name not in found or found[name].shape != own[name].shape):
        problem = f"latents of model {type(refit.bound.model).__name__} have other shapes without some rows"
        raise unsuitable(KEY, f"{problem} ({', '.join(differing)}), so that draws without a fold do not predict it")
    joint = log_ratios(refit.posterior, *(_rows_of(bound) for bound in bounds))
    total, error = (float(each[0]) for each in log_mean_density(joint[None]))
    verdict = read_verdict(refit.layout.verdict).verdict if refit.layout.verdict.exists() else "unknown"
    return Fold(refit.name, num_left_out, counts[1], np.nan, np.nan, total, error, verdict)


def _rows_of(bound: BoundModel) -> SomeRows:
    model, spec, shards = bound
    return SomeRows(model, spec, {name: values[0] for name, values in shards.read_rows(0, 1).items()}, WIDE)


def _outcomes(bound: BoundModel, rows: Sequence[int] | np.ndarray) -> tuple[str, bool]:
    """Return a digest of the outcomes that were left out, and whether they are whole numbers.

    For a model that does not declare its outcome, the digest is of its options and of all fields, so that its scores
    are not compared with those of any other model.
    """
    model, _, shards = bound
    fields = shards.read_rows(0, 1)
    try:
        outcome = np.asarray(model.outcome({name: jnp.asarray(values) for name, values in fields.items()}))[0][rows]
    except (NotImplementedError, KeyError):
        parts = [digest_outcomes(values) for _, values in sorted(fields.items())]
        about = f"{type(model).__name__} {model.options.model_dump_json()} {sorted(fields)} {parts}"
        return hashlib.sha256(about.encode()).hexdigest(), False
    return digest_outcomes(outcome), outcome.dtype.kind in "iub"
