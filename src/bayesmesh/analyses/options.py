"""Options of every analysis of this package, importable without array libraries.

The class of `some_name` is `SomeNameOptions`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bayesmesh.config.refit_settings import Folds, LeftOut, Refits
from bayesmesh.config.settings import Settings


class AveragingOptions(Settings):
    """Scores of single draws and of their average on the test rows; needs a source with test rows."""

    calibration_bins: int = Field(
        15, ge=2, le=1000, description="Number of equal-width confidence bins for the expected calibration error."
    )
    points_per_decade: int = Field(
        4, ge=1, le=100, description="Number of draw counts per factor of ten at which the average is scored."
    )


class DivergentDrawsOptions(Settings):
    """Values of latents, and of pairs of latents, at which divergences concentrate."""

    latents: int = Field(
        500,
        ge=2,
        le=100_000,
        description="Maximum number of elements of latents to examine, evenly spaced in longer arrays.",
    )
    drawn: int = Field(
        1000, ge=10, le=20_000, description="Maximum number of draws without divergence in the figures, evenly spaced."
    )


class EffectsOptions(Settings):
    """Effects of predictors on the outcome: predictions, comparisons and slopes, at values or averaged, with intervals."""

    predictions: bool = Field(False, description="Predict the expected outcome, or the probability of each level.")
    comparisons: tuple[str, ...] | dict[str, float | int | str | list[float | int | str]] = Field(
        (),
        description="Columns whose effect is compared between two values, as a list or with a step each. Of a number: the "
        "distance from its value, 1 by default; `sd` or `2sd` around its mean; `iqr` or `minmax`; or two values as "
        "`[1, 2]`. Of a category: `reference` (each level with the first, the default), `sequential`, `pairwise` or two "
        "levels. All predictors if neither predictions, comparisons nor slopes are asked for; the prediction, if there are none.",
        examples=[{"age": 10, "site": "pairwise"}],
    )
    slopes: tuple[str, ...] = Field(
        (), description="Columns of numbers whose derivative dY/dX is computed.", examples=[["age"]]
    )
    at: dict[str, list[float | int | str]] = Field(
        {},
        description="Values of columns at which effects are evaluated, all combinations of them.",
        examples=[{"age": [20, 40, 60], "site": ["a"]}],
    )
    rows: Literal["typical", "observed"] | None = Field(
        None,
        description="Values of the other columns: `typical` for numbers at their mean and categories at their most "
        "frequent level, the default with `at`; `observed` for those of each training row, the default without.",
        examples=["observed"],
    )
    average: bool = Field(True, description="Average over observed rows within each draw; otherwise list every row.")
    by: tuple[str, ...] = Field(
        (), description="Categories within whose levels observed rows are averaged.", examples=[["site"]]
    )
    measure: Literal["difference", "ratio", "log_ratio", "odds_ratio", "log_odds_ratio"] = Field(
        "difference", description="What comparisons make of the two averages."
    )
    scale: Literal["outcome", "predictor"] = Field(
        "outcome",
        description="Expected values, or probabilities of levels, in the unit of the outcome; or linear predictors.",
    )
    group_effects: Literal["included", "zero"] = Field(
        "included", description="Whether effects of groups are those of each row's level, or 0."
    )
    interval: float = Field(0.9, gt=0, lt=1, description="Probability of the intervals, with equal tails.")
    draws: int = Field(4000, ge=4, le=1_000_000, description="Maximum number of draws to use, evenly spaced.")


class EvidenceOptions(Settings):
    """Evidence by bridge sampling and, for kernels that estimate it, by tempered chains, each with its error."""

    draws: int = Field(
        8000,
        ge=80,
        le=1_000_000,
        description="Maximum number of draws for bridge sampling, evenly spaced. It evaluates the density at these and "
        "at as many other points.",
    )
    seed: int = Field(
        0, ge=0, lt=2**32, description="Seed of the points that bridge sampling draws from the fitted normals."
    )


class KFoldOptions(Folds):
    """Log scores of rows under posteriors fitted without them, from one refit per fold of rows, groups or later times."""

    block_mebibytes: int = Field(
        64, ge=1, le=65536, description="Memory for the log likelihoods of all draws at one block of rows, in MiB."
    )


class LooOptions(Refits):
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
        examples=[[17]],
    )

    def left_out(self) -> dict[str, LeftOut]:
        """Return the rows without which the experiment is sampled again."""
        return {f"without-row-{row}": LeftOut(rows=(row,)) for row in self.refit}


class NeighboursOptions(Settings):
    """Nearest neighbours of some films in the space of embeddings, with intervals."""

    films: tuple[int, ...] = Field(
        (),
        max_length=100,
        description="Columns of the watch matrix whose neighbours are listed; by default, the most watched films.",
        examples=[[0, 12]],
    )
    num_films: int = Field(8, ge=1, le=100, description="Number of films whose neighbours are listed by default.")
    num_neighbours: int = Field(5, ge=1, le=50, description="Number of neighbours listed for each film.")
    draws: int = Field(2000, ge=20, le=1_000_000, description="Maximum number of draws to use, evenly spaced.")


class PredictiveChecksOptions(Settings):
    """Posterior predictive checks: test quantities of simulated outcomes beside those of the observed ones."""

    draws: int = Field(
        1000,
        ge=20,
        le=1_000_000,
        description="Maximum number of draws from which to simulate outcomes, evenly spaced.",
    )
    prior: bool = Field(
        False, description="Also simulate outcomes from as many draws of the prior, and keep them in the posterior."
    )


class RatingScoresOptions(Settings):
    """Errors of predicted held-out ratings, beside those of simple rules, and coverage of predictive intervals; needs held-out rows."""

    draws: int = Field(2000, ge=2, le=1_000_000, description="Maximum number of draws to use, evenly spaced.")
    given: float = Field(
        0.8,
        gt=0,
        lt=1,
        description="Share of the ratings of each wholly held-out user from which the user is folded in; the other "
        "ratings are predicted, with at most 200 draws.",
    )
    resamples: int = Field(
        1000,
        ge=100,
        le=100_000,
        description="Number of bootstrap resamples of the users, for 95% intervals of the scores.",
    )
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of the resamples and of random splits of the ratings.")


class RecommendationOptions(Settings):
    """Films ranked for a few users, and held-out scores of all users; needs a watch matrix."""

    num_films: int = Field(20, ge=1, le=10_000, description="Films listed per user in top.csv.")
    users: tuple[int, ...] = Field(
        (),
        description="Row numbers of users to list in addition to the most and the least active user.",
        max_length=1000,
        examples=[[0, 12]],
    )
    top: int = Field(
        10, ge=1, le=1000, description="Depth of `p_top`, the probability that a film is among the user's best."
    )
    cutoff: int = Field(20, ge=1, le=1000, description="Cutoff rank of recall and NDCG on held-out films.")
    draws: int = Field(
        64,
        ge=1,
        le=100_000,
        description="Number of draws of the films for folding in users whom the chains have not seen.",
    )
    baselines: bool = Field(
        True,
        description="Also score EASE, implicit ALS and a mode of the posterior, fitted to the training matrix.",
    )


class SensitivityOptions(Settings):
    """Sensitivity of every quantity to powers of the prior and of the likelihood."""

    draws: int = Field(4000, ge=40, le=1_000_000, description="Maximum number of draws to use, evenly spaced.")
    quantities: int = Field(
        500,
        ge=1,
        le=100_000,
        description="Maximum number of elements of summaries and latents to list, evenly spaced in longer arrays.",
    )
