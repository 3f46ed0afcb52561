"""Score each fold as one, under a model that takes all rows as one: the density of the fold given the rows that stay.

At a draw of a refit, this density is the likelihood of the fold and the rows that stay, divided by that of the rows
that stay. Its mean over the draws is the predictive density of the fold. Terms that do not depend on the fold, such as
a prior, cancel.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bayesmesh.analyses._draw_blocks import outcomes_of
from bayesmesh.analyses._refit_scores import left_out_rows, log_mean_density
from bayesmesh.analyses.base import BoundModel, Subject, draw_shapes, unsuitable
from bayesmesh.analyses.k_fold.tables import Fold, write_tables
from bayesmesh.analyses.options import KFoldOptions as Options
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.errors import ConfigError, StoreError
from bayesmesh.models.base import Latents, Model
from bayesmesh.store.posterior.reader import BLOCK_BYTES, CHUNK_DRAWS, Posterior, in_dtype, iterate_chunks
from bayesmesh.store.scores import POINTWISE, RowScores, digest_outcomes, write_pointwise

KEY = "k_fold"

NUM_TRIED = 4
"""Number of prior draws at which the likelihood of reordered rows is computed."""

_ORDER_TOLERANCE = 1e-3
"""Largest relative difference of two log likelihoods that float32 rounding explains."""


class SomeRows:
    """A model bound to some rows, which it takes as one.

    Args:
        model: a model that takes all rows as one, bound to any rows.
        spec: its data.
        rows: field -> (row, ...), as the source has them.
        dtype: of floating-point fields and of the log likelihood.
    """

    def __init__(self, model: Model, spec: DataSpec, rows: Mapping[str, np.ndarray], dtype: str) -> None:
        whole = {name: values[None] for name, values in rows.items()}
        fields = {name: FieldSpec(values.shape, values.dtype.name) for name, values in rows.items()}
        found = dataclasses.replace(spec, num_rows=1, fields=fields, dtype=dtype)
        # A model that holds its data is rebuilt from these rows.
        preparation = type(model).prepare(model.options, found, lambda: iter([whole]))
        if preparation is not None:
            constants = {**spec.constants, **preparation.constants}
            found = dataclasses.replace(found, constants=constants, arrays=preparation.arrays)
        self.spec, self.model = found, type(model)(model.options, found)
        self._rows = {k: jnp.asarray(in_dtype(v, dtype)) for k, v in whole.items()}

    def log_likelihood(self, draw: Latents) -> jax.Array:
        """Return the log likelihood of these rows together at one draw, in nats."""
        return self.model.log_likelihood(draw, self._rows)[0]


def log_ratios(posterior: Posterior, larger: SomeRows, smaller: SomeRows) -> Float[np.ndarray, "chain draw"]:
    """Return log p(larger rows | draw) - log p(smaller rows | draw) at all draws, float64, in nats.

    Draws are evaluated one at a time, so that memory is that of one evaluation, as in one step of a chain.
    """

    def ratio(draw: Latents) -> jax.Array:
        return larger.log_likelihood(draw) - smaller.log_likelihood(draw)

    program = jax.jit(lambda latents: jax.lax.map(ratio, latents))
    found = np.empty(posterior.num_chains * posterior.num_draws)
    for first, count, latents in iterate_chunks(posterior, larger.spec.dtype, CHUNK_DRAWS, BLOCK_BYTES):
        found[first : first + count] = np.asarray(program(latents))[:count]
    return found.reshape(posterior.num_draws, posterior.num_chains).T


def check_whole(bound: BoundModel, options: Options) -> None:
    """Check that a model that takes all rows as one has the same latents and a likelihood for fewer rows.

    Args:
        bound: model and all data.
        options: how rows are left out.

    Raises:
        ConfigError: rows of this model cannot be left out this way; the message says why.
    """
    model, spec, shards = bound
    rows = {name: values[0] for name, values in shards.read_rows(0, 1).items()}
    num_rows = shards.num_observations
    fewer = {name: values[: max(1, num_rows // 2)] for name, values in rows.items()}
    everything, some = (SomeRows(model, spec, each, spec.dtype) for each in (rows, fewer))
    _check_latents(everything, some)
    field = options.future
    is_sorted = (
        field is not None and rows.get(field, np.zeros((0, 0))).ndim == 1 and bool((np.diff(rows[field]) >= 0).all())
    )
    if not is_sorted:
        # Reversal alone is not enough: many a series is as likely in reverse.
        orders = (np.arange(num_rows)[::-1], np.random.default_rng(0).permutation(num_rows))
        others = [SomeRows(model, spec, {k: v[order] for k, v in rows.items()}, spec.dtype) for order in orders]
        _check_order(everything, others, field)


def _check_latents(everything: SomeRows, some: SomeRows) -> None:
    """Check that latents have the same shapes, and that the likelihood of fewer rows can be computed at them."""
    name = type(some.model).__name__
    shapes = [
        jax.eval_shape(lambda each=each: each.model.prior(each.spec).sample(seed=jax.random.key(0)))
        for each in (everything, some)
    ]
    differing = [k for k in shapes[0] if k not in shapes[1] or shapes[0][k].shape != shapes[1][k].shape]
    if differing:
        problem = f"model {name} has latents for each row ({', '.join(sorted(differing))})"
        raise unsuitable(KEY, f"{problem}: draws without a row have none for it, under which it could be scored")
    try:
        jax.eval_shape(some.log_likelihood, shapes[0])
    except (TypeError, ValueError, IndexError) as error:
        first = str(error).strip().splitlines()[0]
        raise unsuitable(
            KEY, f"model {name} has no likelihood of fewer rows, so that none can be left out: {first}"
        ) from error


def _check_order(everything: SomeRows, others: Sequence[SomeRows], field: str | None) -> None:
    """Refuse a likelihood that depends on row order, unless the rows left out come after all rows that stay."""
    name, num_compared = type(everything.model).__name__, 0
    prior = everything.model.prior(everything.spec)
    for key in jax.random.split(jax.random.key(3), NUM_TRIED):
        draw = prior.sample(seed=key)
        found = float(everything.log_likelihood(draw))
        for other in (float(each.log_likelihood(draw)) for each in others):
            if not np.isfinite([found, other]).all():
                continue
            num_compared += 1
            if abs(found - other) > _ORDER_TOLERANCE * max(1.0, abs(found)):
                raise _ordered(f"the log likelihood of model {name} depends on the order of the rows ({found:.6g}, and "
                               f"{other:.6g} in another order)", field)  # fmt: skip
    if not num_compared:
        raise unsuitable(
            KEY,
            f"the log likelihood of model {name} is not finite at {NUM_TRIED} draws of its prior, so that nothing shows "
            "whether it depends on the order of the rows; narrow the prior, or set `compute: {dtype: float64}`",
        )


def _ordered(problem: str, field: str | None) -> ConfigError:
    """Return the error for a likelihood that depends on row order."""
    problem += ": without a row in their midst, the others would count as neighbours"
    if field is not None:
        return unsuitable(f"{KEY}.future", f"{problem}, and the data are not in the order of '{field}'")
    return unsuitable(KEY, f"{problem}; `future: FIELD` leaves out what comes last, of rows in the order of that field")


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
    rows = [left_out_rows(refit.bound.shards) for refit in refits.values()]
    folds = [_score(*each) for each in zip(refits.values(), larger, map(len, rows), strict=True)]
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
    return Fold(refit.name, num_left_out, counts[1], np.nan, np.nan, total, error, refit.verdict)


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
        outcome = outcomes_of(model, fields)[0][rows]
    except (NotImplementedError, KeyError):
        parts = [digest_outcomes(values) for _, values in sorted(fields.items())]
        about = f"{type(model).__name__} {model.options.model_dump_json()} {sorted(fields)} {parts}"
        return hashlib.sha256(about.encode()).hexdigest(), False
    return digest_outcomes(outcome), outcome.dtype.kind in "iub"
