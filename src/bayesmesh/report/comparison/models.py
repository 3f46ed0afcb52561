"""Compare models by their scores on the same rows (differences with paired standard errors, weights, averages) and by evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtri, softmax

from bayesmesh.analyses.evidence.table import Estimate
from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.formats import NUM_ERRORS, Comparison
from bayesmesh.diagnostics.psis import good_k
from bayesmesh.errors import ConfigError
from bayesmesh.report.comparison.weights import make_cells, pseudo_bma, share_draws, stack, stack_by_cell
from bayesmesh.store.scores import SINGLE_ROWS, RowScores, sum_clusters, sum_error

_REPLICATES = 2000


class ModelProbability(NamedTuple):
    """The evidence and the posterior probability of a model.

    Attributes:
        log_evidence: log evidence with its standard error, in nats.
        probability: posterior probability of the model, given equal prior probabilities.
        low, high: 95% interval of this probability, given the standard errors of all log evidences.
    """

    log_evidence: Comparison
    probability: float
    low: float
    high: float


def model_probabilities(estimates: Mapping[str, Estimate]) -> dict[str, ModelProbability]:
    """Return the posterior probability of each model, given equal prior probabilities.

    Args:
        estimates: model -> usable estimate of the evidence.

    >>> found = model_probabilities({"a": Estimate("bridge", -3.0, 0.0), "b": Estimate("bridge", -3.0, 0.0)})
    >>> found["a"].probability, found["a"].low
    (0.5, 0.5)
    """
    log_evidence = np.array([each.log_evidence for each in estimates.values()])
    errors = np.array([each.error for each in estimates.values()])
    noise = np.random.default_rng(0).standard_normal((_REPLICATES, len(errors))) * errors
    low, high = np.quantile(softmax(log_evidence + noise, axis=1), (0.025, 0.975), axis=0)
    numbers = zip(estimates.items(), softmax(log_evidence), low, high, strict=True)
    return {
        name: ModelProbability(Comparison(each.log_evidence, each.error), float(p), float(a), float(b))
        for (name, each), p, a, b in numbers
    }


def say_probabilities(found: Mapping[str, ModelProbability]) -> list[str]:
    """Return sentences that interpret posterior model probabilities; none without probabilities."""
    if not found:
        return []
    name, best = max(found.items(), key=lambda item: item[1].log_evidence.difference)
    interval = f"{formats.share(best.low)} to {formats.share(best.high)}"
    if best.low > 0.5:
        first = f"With equal prior probabilities, {name} has posterior probability {formats.share(best.probability)} ({interval})."
    else:
        first = (
            f"With equal prior probabilities, {name} is the most probable model, with {formats.share(best.probability)} "
            f"({interval}), which does not single it out."
        )
    return [
        first,
        "These probabilities follow from the evidence and depend on the width of the priors even where predictions do not; they say which "
        "model is most probable, assuming that one of them is true. To predict, use stacking.",
    ]


STACKED, WEIGHTED = "(stacking)", "(pseudo-BMA+)"
"""Names of the averages over all models; they are not valid names of experiments."""

NO_DIFFERENCE = "not clearly different"
"""Text for a difference within its error."""

NUM_DRAWS = 1000
"""Number of draws of an average, divided among its models."""


class Member(NamedTuple):
    """A model in a comparison, or an average over all models; scores are sums over rows, in nats.

    Attributes:
        name: name of the experiment, or of the average.
        elpd: sum of the log scores of rows left out in turn, with its standard error.
        difference: difference from the best single model; its standard error combines that of paired rows with the
            Monte Carlo error.
        p_loo: effective number of parameters; NaN for an average or if unknown.
        num_high_k: number of rows whose Pareto k is too high for a reliable score.
        stacking, pseudo_bma: weights; NaN for an average.
        held_out: sum of the log scores of held-out rows, with its standard error; None if they are not compared.
        held_out_difference: difference from the same best model on held-out rows, with Monte Carlo error; or None.
        num_draws: number of draws from this model among `NUM_DRAWS` of the stacked average; 0 for an average.
    """

    name: str
    elpd: Comparison
    difference: Comparison
    p_loo: float
    num_high_k: int
    stacking: float
    pseudo_bma: float
    held_out: Comparison | None
    held_out_difference: Comparison | None
    num_draws: int = 0


class ModelComparison(NamedTuple):
    """Models compared on the same rows.

    Attributes:
        members: the models, by descending `elpd`.
        averages: averages of their predictive distributions, with stacking weights and with pseudo-BMA+ weights.
        num_rows, num_held_out: number of rows left out in turn, and of held-out rows.
        residual: violation of the optimality condition by the stacking weights.
        failed: models whose chains failed their gates.
        failed_refits: refits of the models without some rows, whose chains failed their gates.
        outdated: models whose scores are older than their configuration, code or data, or are damaged.
        probabilities: model -> its posterior probability; empty unless all models have a usable evidence estimate.
        by_cell: stacking weights that vary with a feature, or None.
        scheme: description of how rows were left out.
        num_groups: number of groups left out, over which standard errors are computed; 0 if rows are independent.
        held_out_best: model with the highest sum on held-out rows, and the difference of the stacked average from it
            there; None without held-out rows, or if this model is the first member.
        without_held_out: models that lack scores of held-out rows while others have them, so that none are compared.
    """

    members: list[Member]
    averages: list[Member]
    num_rows: int
    num_held_out: int
    residual: float
    failed: tuple[str, ...] = ()
    failed_refits: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()
    probabilities: Mapping[str, ModelProbability] = {}
    by_cell: WeightsByCell | None = None
    scheme: str = SINGLE_ROWS
    num_groups: int = 0
    held_out_best: tuple[str, Comparison] | None = None
    without_held_out: tuple[str, ...] = ()

    @property
    def num_errors(self) -> float:
        """Number of standard errors beyond which a difference from the best model counts.

        It gives simultaneous 95% intervals for all differences, by a Bonferroni correction.
        """
        others = max(1, len(self.members) - 1)
        return max(NUM_ERRORS, -float(ndtri(0.025 / others)))

    def words(self, difference: Comparison) -> str:
        """Return "better", "worse" or `NO_DIFFERENCE` for a difference, by its simultaneous interval."""
        scaled = Comparison(difference.difference, difference.error * self.num_errors / NUM_ERRORS)
        return scaled.words("better", "worse", NO_DIFFERENCE)


class Feature(NamedTuple):
    """A feature with which weights vary.

    Attributes:
        name: name on the page.
        values: (row,), in the order of the source.
        levels: names of the levels if values are their codes; empty otherwise.
    """

    name: str
    values: np.ndarray
    levels: tuple[str, ...] = ()


class WeightsByCell(NamedTuple):
    """Weights from hierarchical stacking over the cells of a feature.

    Attributes:
        feature: name of the feature.
        rows: for each cell, its label, its number of rows, and the weights of the members in their order.
        gain: cross-validated sum of log scores, minus that with the same weights in all cells.
    """

    feature: str
    rows: list[tuple[str, int, list[float]]]
    gain: Comparison


def compare_models(
    scores: Mapping[str, Mapping[str, RowScores]], failed: Sequence[str] = (), feature: Feature | None = None
) -> ModelComparison:
    """Compare models by their scores on the same rows.

    Args:
        scores: model -> ``left_out`` and possibly ``held_out`` scores.
        failed: models whose chains failed their gates.
        feature: feature with which stacking weights vary, or None.

    Raises:
        ConfigError: there are fewer than two models; models differ in rows, outcomes or scheme; a score is not finite;
            or the feature does not fit the rows.
    """
    if len(scores) < 2:
        raise ConfigError(f"{len(scores)} model with scores by row", "name two experiments or more")
    left_out = {name: each["left_out"] for name, each in scores.items()}
    _check_same_rows(left_out, "training")
    held_out = {name: each["held_out"] for name, each in scores.items() if "held_out" in each}
    is_held = len(held_out) == len(scores)
    if is_held:
        _check_same_rows(held_out, "held-out")
    order = sorted(left_out, key=lambda name: -left_out[name].elpd.sum())
    cluster = left_out[order[0]].cluster
    table = _as_matrix(left_out, order)
    held = _as_matrix(held_out, order) if is_held else None
    clusters = (cluster, held_out[order[0]].cluster if is_held else None)
    by_group = sum_clusters(table, cluster)
    # Rows of one group are not independent, so the bootstrap resamples groups.
    stacking, bma = stack(table), pseudo_bma(by_group)
    noise = _noise((left_out, held_out), order)

    members = []
    for i, name in enumerate(order):
        weights = {"stacking": float(stacking.weights[i]), "pseudo_bma": float(bma[i])}
        on_rows, on_held = (table[:, 0], table[:, i]), (held, None if held is None else held[:, i])
        own_noise, about = _noise_from(noise, np.eye(len(order))[i]), weights | _doubts(left_out[name])
        members.append(_member(name, on_rows, on_held, own_noise, clusters, **about))
    shared = zip(members, share_draws(stacking.weights, NUM_DRAWS), strict=True)
    members = [member._replace(num_draws=count) for member, count in shared]
    averages = []
    for name, shares in ((STACKED, stacking.weights), (WEIGHTED, bma)):
        at = None if held is None else _mix(held, shares)
        on_rows = table[:, 0], _mix(table, shares)
        averages.append(_member(name, on_rows, (held, at), _noise_from(noise, shares), clusters))
    num_held_out = 0 if held is None else len(held)
    lacking = tuple(name for name in order if name not in held_out) if held_out else ()
    by_cell = None if feature is None else _weigh_cells(table, feature, left_out[order[0]])
    failed_refits = tuple(dict.fromkeys(refit for name in order for refit in left_out[name].failed))
    return ModelComparison(
        members, averages, len(table), num_held_out, stacking.residual, tuple(failed), failed_refits,
        by_cell=by_cell, scheme=left_out[order[0]].scheme, num_groups=0 if cluster is None else len(by_group),
        held_out_best=None if held is None else _best_held_out(held, order, stacking.weights, clusters[1], noise),
        without_held_out=lacking,
    )  # fmt: skip


def _best_held_out(
    held: np.ndarray, order: Sequence[str], weights: np.ndarray, clusters: np.ndarray | None, noise: np.ndarray
) -> tuple[str, Comparison] | None:
    """Return the model that is best on held-out rows and the average's difference from it; None if it is the first."""
    best = int(held.sum(axis=0).argmax())
    if not best:
        return None
    gap = _mix(held, weights) - held[:, best]
    error = math.hypot(sum_error(gap, clusters), _noise_from(noise, weights, best)[1])
    return order[best], Comparison(float(gap.sum()), error)


def _weigh_cells(table: np.ndarray, feature: Feature, scores: RowScores) -> WeightsByCell:
    """Return stacking weights for the cells of a feature.

    Raises:
        ConfigError: the feature does not have one value per row, a value is not finite, or there are too many levels.
    """
    problem = f"feature '{feature.name}'"
    if scores.row is not None and feature.values.ndim == 1 and len(feature.values) > scores.row.max():
        feature = feature._replace(values=feature.values[scores.row.astype(np.int64)])
    if feature.values.shape != (len(table),):
        shape = f"has shape {feature.values.shape}, and there are {len(table):,} rows"
        raise ConfigError(f"{problem} {shape}", "name a column with one number or level for each row")
    try:
        cells = make_cells(feature.values, feature.levels)
    except ValueError as error:
        raise ConfigError(f"{problem}: {error}", "name a number, or a category with fewer levels") from error
    found = stack_by_cell(table, cells, scores.cluster)
    counts = np.bincount(cells.codes, minlength=len(cells.labels)).tolist()
    gain = found.log_scores - found.log_scores_same
    rows = list(zip(cells.labels, counts, found.weights.tolist(), strict=True))
    return WeightsByCell(feature.name, rows, Comparison(float(gain.sum()), sum_error(gain, scores.cluster)))


def _member(
    name: str,
    left_out: tuple[np.ndarray, np.ndarray],
    held_out: tuple[np.ndarray | None, np.ndarray | None],
    noise: tuple[float, float],
    clusters: tuple[np.ndarray | None, np.ndarray | None],
    **about: float,
) -> Member:
    """Return a row of the comparison.

    Args:
        name: name of the model or the average.
        left_out: scores of the rows under the best model, and under this one.
        held_out: scores of held-out rows under all models, (row, model), the best model first, and under this one; or
            None.
        noise: Monte Carlo errors of the differences from the best model, on the rows and on held-out rows.
        clusters: see `RowScores.cluster`, for the rows and for held-out rows.
        about: weights, effective number of parameters and number of rows with an unreliable score.
    """
    best, own = left_out
    gap = own - best
    on_held, held_gap = None, None
    if held_out[0] is not None and held_out[1] is not None:
        further = held_out[1] - held_out[0][:, 0]
        on_held = Comparison(float(held_out[1].sum()), sum_error(held_out[1], clusters[1]))
        held_gap = Comparison(float(further.sum()), math.hypot(sum_error(further, clusters[1]), noise[1]))
    return Member(
        name, Comparison(float(own.sum()), sum_error(own, clusters[0])),
        Comparison(float(gap.sum()), math.hypot(sum_error(gap, clusters[0]), noise[0])),
        about.get("p_loo", math.nan), int(about.get("num_high_k", 0)), about.get("stacking", math.nan),
        about.get("pseudo_bma", math.nan), on_held, held_gap,
    )  # fmt: skip


def _as_matrix(scores: Mapping[str, RowScores], order: Sequence[str]) -> np.ndarray:
    table = np.stack([scores[name].elpd for name in order], axis=1)
    if not np.isfinite(table).all():
        row, column = np.argwhere(~np.isfinite(table))[0]
        problem = (
            f"experiment '{order[column]}': the log score of row {row + 1}, counted from 1, is {table[row, column]}"
        )
        raise ConfigError(problem, "leave this experiment out, or use a model under which every outcome is possible")
    return table


def _doubts(scores: RowScores) -> dict[str, float]:
    high = 0 if scores.pareto_k is None else int((scores.pareto_k > good_k(scores.num_draws)).sum())
    p_loo = math.nan if scores.effective_parameters is None else float(scores.effective_parameters.sum())
    return {"num_high_k": high, "p_loo": p_loo}


def _mix(table: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the log score of each row under the weighted average of predictive distributions."""
    is_used = weights > 0
    return np.asarray(logsumexp(table[:, is_used], axis=1, b=weights[is_used]))


def _noise(scores: Sequence[Mapping[str, RowScores]], order: Sequence[str]) -> np.ndarray:
    """Return the Monte Carlo errors of the sums, (rows or held-out rows, model); 0 where a model has no scores."""
    return np.array([[each[name].monte_carlo_error if name in each else 0.0 for name in order] for each in scores])


def _noise_from(noise: np.ndarray, weights: np.ndarray, other: int = 0) -> tuple[float, float]:
    """Return the Monte Carlo errors of an average's difference from a model, which is part of the average.

    Args:
        noise: see `_noise`.
        weights: (model,), of the average.
        other: position of the model.
    """
    on_rows, on_held = np.linalg.norm((weights - np.eye(len(weights))[other]) * noise, axis=1).tolist()
    return on_rows, on_held


def _check_same_rows(scores: Mapping[str, RowScores], kind: str) -> None:
    """Refuse scores of different rows, kinds of outcome, outcomes or schemes.

    Raises:
        ConfigError: two experiments differ; the message names them and the difference.
    """
    (first, reference), *others = scores.items()
    for name, each in others:
        if len(each.elpd) != len(reference.elpd):
            found = f"{len(reference.elpd):,} {kind} rows, and '{name}' {len(each.elpd):,}"
            raise ConfigError(f"experiment '{first}' has {found}", "compare models of the same rows")
        if each.is_discrete != reference.is_discrete:
            kinds = ("log densities", "log probabilities")
            found = f"{kinds[reference.is_discrete]} of a {'whole' if reference.is_discrete else 'real'} outcome"
            problem = f"experiment '{first}' scores {found}, and '{name}' {kinds[each.is_discrete]}"
            raise ConfigError(problem, "compare models of one kind of outcome: a density depends on the unit")
        if each.digest != reference.digest:
            problem = f"experiments '{first}' and '{name}' have different outcomes in their {kind} rows"
            remedy = "compare models of the same rows, in the same order, with the same transform of the outcome"
            raise ConfigError(problem, remedy)
        if each.scheme != reference.scheme:
            problem = f"rows of experiment '{first}' are left out as {reference.scheme}, and those of '{name}' as {each.scheme}"
            raise ConfigError(problem, "leave out rows in one way: with the same analysis, folds, fields and seed")
