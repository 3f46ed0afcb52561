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
    on_rows, on_held = _Rows.of(left_out, order), _Rows.of(held_out, order) if is_held else None
    by_group = sum_clusters(on_rows.table, on_rows.cluster)
    # Rows of one group are not independent, so the bootstrap resamples groups.
    stacking, bma = stack(on_rows.table), pseudo_bma(by_group)

    def member(name: str, weights: np.ndarray, **about: float) -> Member:
        """Return a model or an average, with its weights for the models."""
        held, held_gap = (None, None) if on_held is None else on_held.compare(weights)
        return Member(
            name, *on_rows.compare(weights), about.get("p_loo", math.nan), int(about.get("num_high_k", 0)),
            about.get("stacking", math.nan), about.get("pseudo_bma", math.nan), held, held_gap, int(about.get("num_draws", 0)),
        )  # fmt: skip

    own = zip(stacking.weights.tolist(), bma.tolist(), share_draws(stacking.weights, NUM_DRAWS), strict=True)
    members = [
        member(name, alone, stacking=of_stacking, pseudo_bma=of_bma, num_draws=count, **_doubts(left_out[name]))
        for name, alone, (of_stacking, of_bma, count) in zip(order, np.eye(len(order)), own, strict=True)
    ]
    held_out_best = None
    if on_held is not None and (best := int(on_held.table.sum(axis=0).argmax())):
        held_out_best = order[best], on_held.compare(stacking.weights, best)[1]
    return ModelComparison(
        members, [member(STACKED, stacking.weights), member(WEIGHTED, bma)], len(on_rows.table),
        0 if on_held is None else len(on_held.table), stacking.residual, tuple(failed),
        tuple(dict.fromkeys(refit for name in order for refit in left_out[name].failed)),
        by_cell=None if feature is None else _weigh_cells(on_rows.table, feature, left_out[order[0]]),
        scheme=left_out[order[0]].scheme, num_groups=0 if on_rows.cluster is None else len(by_group),
        held_out_best=held_out_best,
        without_held_out=tuple(name for name in order if name not in held_out) if held_out else (),
    )  # fmt: skip


class _Rows(NamedTuple):
    """Rows left out in turn, or held-out rows.

    Attributes:
        table: (row, model), log scores.
        cluster: see `RowScores.cluster`.
        noise: (model,), Monte Carlo errors of the sums.
    """

    table: np.ndarray
    cluster: np.ndarray | None
    noise: np.ndarray

    @classmethod
    def of(cls, scores: Mapping[str, RowScores], order: Sequence[str]) -> _Rows:
        """Return the scores of models in order.

        Raises:
            ConfigError: a score is not finite.
        """
        table = np.stack([scores[name].elpd for name in order], axis=1)
        if not np.isfinite(table).all():
            row, column = np.argwhere(~np.isfinite(table))[0]
            problem = (
                f"experiment '{order[column]}': the log score of row {row + 1}, counted from 1, is {table[row, column]}"
            )
            raise ConfigError(
                problem, "leave this experiment out, or use a model under which every outcome is possible"
            )
        noise = np.array([scores[name].monte_carlo_error for name in order])
        return cls(table, scores[order[0]].cluster, noise)

    def compare(self, weights: np.ndarray, other: int = 0) -> tuple[Comparison, Comparison]:
        """Return the sum of log scores of an average, and its difference from a model, which is part of the average."""
        is_used = weights > 0
        own = logsumexp(self.table[:, is_used], axis=1, b=weights[is_used])
        gap = own - self.table[:, other]
        noise = float(np.linalg.norm((weights - np.eye(len(weights))[other]) * self.noise))
        error = math.hypot(sum_error(gap, self.cluster), noise)
        return Comparison(float(own.sum()), sum_error(own, self.cluster)), Comparison(float(gap.sum()), error)


def _weigh_cells(table: np.ndarray, feature: Feature, scores: RowScores) -> WeightsByCell:
    """Return stacking weights for the cells of a feature.

    Raises:
        ConfigError: the feature does not have one value per row, a value is not finite, or there are too many levels.
    """
    problem = f"feature '{feature.name}'"
    if scores.row is not None and feature.values.ndim == 1 and len(feature.values) > scores.row.max():
        feature = feature._replace(values=feature.values[scores.row.astype(np.int64)])
    if feature.values.shape != (len(table),):
        shape = f"has shape {feature.values.shape}, but there are {len(table):,} rows"
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


def _doubts(scores: RowScores) -> dict[str, float]:
    high = 0 if scores.pareto_k is None else int((scores.pareto_k > good_k(scores.num_draws)).sum())
    p_loo = math.nan if scores.effective_parameters is None else float(scores.effective_parameters.sum())
    return {"num_high_k": high, "p_loo": p_loo}


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
