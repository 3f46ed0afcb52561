"""Sample the latents of users whom the chains have not seen, given some ratings and draws of the films' latents.

Given the films, the mean and the noise, the bias and the embedding of a user with normal ratings are exactly normal and
are drawn directly. Ordered ratings lead to the log-concave posterior of a cumulative logit regression, to which
Newton's method and the independence sampler of `fold_in.watches` apply. The films' posterior stays that of the training
users. Only NumPy is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Float, Int

from bayesmesh.analyses.fold_in.draws import FactorDraws
from bayesmesh.analyses.fold_in.watches import (
    NUM_PROPOSALS,
    SEED,
    Films,
    FoldedDraw,
    FoldedUsers,
    carried,
    films_of,
    find_mode,
    sample_at_mode,
    sigmoid,
)

LOGISTIC_SD = math.pi / math.sqrt(3)


class RatingScales(NamedTuple):
    """The prior of a user's latents, and the ratings that are possible.

    Attributes:
        embedding, bias: standard deviations of the normal priors.
        levels: values of ordered ratings, ascending; empty where ratings are normal.
    """

    embedding: float
    bias: float
    levels: np.ndarray

    @property
    def shared(self) -> tuple[str, ...]:
        """Latents that all ratings share."""
        return ("baseline",) if len(self.levels) else ("mean", "sigma")

    def precision(self, size: int) -> Float[np.ndarray, " size"]:
        """Return the prior precision of a user's latents, the bias last."""
        return np.append(np.full(size - 1, self.embedding**-2), self.bias**-2)


class RatingOptions(Protocol):
    """Options of a model that `folds_in_ratings`, as far as they decide the prior of a user."""

    @property
    def likelihood(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def bias_scale(self) -> float: ...
    @property
    def factor_scale(self) -> float: ...


def scales_of(options: RatingOptions, rating_sd: float, levels: np.ndarray) -> RatingScales:
    """Return the prior of a user's latents.

    Args:
        options: of the model.
        rating_sd: standard deviation of the training ratings.
        levels: values of ordered ratings.
    """
    is_ordinal = options.likelihood == "ordinal"
    sd = LOGISTIC_SD if is_ordinal else rating_sd
    embedding = math.sqrt(options.factor_scale * sd / math.sqrt(options.width))
    return RatingScales(embedding, options.bias_scale * sd, levels if is_ordinal else np.zeros(0))


class GivenRatings(NamedTuple):
    """Ratings of new users, user by user.

    Attributes:
        film: (rating,) int64.
        value: (rating,) float64; for ordered ratings, the number of the level.
        start: (user + 1,) int64; those of user u are ``start[u]`` to ``start[u + 1] - 1``.
    """

    film: Int[np.ndarray, " rating"]
    value: Float[np.ndarray, " rating"]
    start: Int[np.ndarray, " bounds"]


def fold_in_run(
    draws: FactorDraws, run: range, given: GivenRatings, scales: RatingScales, num_proposals: int = NUM_PROPOSALS
) -> Iterator[FoldedDraw]:
    """Yield the new users in each draw of a run.

    Args:
        draws: of the films, with the latents `RatingScales.shared`.
        run: positions of consecutive draws.
        given: ratings of each user; at least one per user if ratings are ordered.
        scales: of the prior.
        num_proposals: for ordered ratings; see `fold_in`.
    """
    old: tuple[Films, np.ndarray] | None = None
    for place in run:
        films = films_of(draws.film_embeddings[place], draws.film_biases[place])
        shared = {name: draws.shared[name][place] for name in scales.shared}
        generator = np.random.default_rng([SEED, place])
        if len(scales.levels):
            start = None if old is None else carried(old[0], films, old[1])
            found = _draw_ordered(films, given, scales, shared["baseline"], generator, start, num_proposals)
            old = films, found.mode
        else:
            found = draw_normal(films, given, scales, float(shared["mean"]), float(shared["sigma"]), generator)
        yield FoldedDraw(place, films, found.latents, found.acceptance)


def draw_normal(
    films: Films, given: GivenRatings, scales: RatingScales, mean: float, sigma: float, generator: np.random.Generator
) -> FoldedUsers:
    """Draw each user's latents from their normal posterior: precision D^T D / sigma^2 + that of the prior.

    Args:
        films: one draw; D has the rows of the rated ones.
        given: ratings of each user.
        scales: of the prior.
        mean, sigma: of the same draw.
        generator: random numbers.
    """
    users, size = len(given.start) - 1, films.design.shape[1]
    design = films.design[given.film].astype(np.float64) / sigma
    residual = (given.value - mean - films.offset[given.film]) / sigma
    precision, linear = np.zeros((users, size, size)), np.zeros((users, size))
    for user, (first, last) in enumerate(zip(given.start[:-1], given.start[1:], strict=True)):
        own = design[first:last]
        precision[user], linear[user] = own.T @ own, own.T @ residual[first:last]
    precision += np.diag(scales.precision(size))
    centre = np.linalg.solve(precision, linear[..., None])[..., 0]
    factor = np.swapaxes(np.linalg.cholesky(precision), 1, 2)
    noise = np.linalg.solve(factor, generator.standard_normal((users, size, 1)))[..., 0]
    return FoldedUsers(centre + noise, centre, np.ones(users))


def expected_ratings(predictor: np.ndarray, shared: Mapping[str, np.ndarray], scales: RatingScales) -> np.ndarray:
    """Return the expected ratings in one draw, of the predictor's shape, float64.

    Args:
        predictor: sum of the terms of user and film.
        shared: of the same draw, see `RatingScales.shared`.
        scales: of the model.
    """
    if not len(scales.levels):
        return np.asarray(shared["mean"] + predictor, np.float64)
    expected = np.full(predictor.shape, scales.levels[-1], np.float64)
    for step, cut in zip(np.diff(scales.levels), cutpoints(shared["baseline"]), strict=True):
        expected -= step * sigmoid(cut - predictor)
    return expected


def cutpoints(baseline: Float[np.ndarray, " levels"]) -> Float[np.ndarray, " cutpoints"]:
    """Return the cutpoints of cumulative logits, float64, as `bayesmesh.models._outcomes` does."""
    wide = np.asarray(baseline, np.float64)
    below, above = np.cumsum(wide), np.cumsum(wide[::-1])[::-1]
    return np.log(below[:-1]) - np.log(above[1:])


def _draw_ordered(
    films: Films,
    given: GivenRatings,
    scales: RatingScales,
    baseline: np.ndarray,
    generator: np.random.Generator,
    start: np.ndarray | None,
    num_proposals: int,
) -> FoldedUsers:
    """Draw each user's latents by an independence sampler at their mode."""
    posterior = _Ordered(films, given, cutpoints(baseline), scales.precision(films.design.shape[1]))
    begin = np.zeros((len(given.start) - 1, films.design.shape[1])) if start is None else start
    mode, factor = find_mode(posterior, begin)
    latents, acceptance = sample_at_mode(posterior, mode, factor, generator, num_proposals)
    return FoldedUsers(latents, mode, acceptance)


class _Ordered:
    """The posterior of some users with ordered ratings, given one draw of the films, up to a constant.

    A rating between the cutpoints l and h has the log probability log sigmoid(h - x) + log sigmoid(x - l) and a term without
    the predictor x.
    """

    def __init__(self, films: Films, given: GivenRatings, cut: np.ndarray, precision: np.ndarray) -> None:
        self._given, self._precision = given, precision
        self._design = films.design[given.film].astype(np.float64)
        edges, level = np.concatenate([[-np.inf], cut, [np.inf]]), given.value.astype(np.int64)
        offset = films.offset[given.film].astype(np.float64)
        self._low, self._high = edges[level] - offset, edges[level + 1] - offset
        self._user = np.repeat(np.arange(len(given.start) - 1), np.diff(given.start))

    def log_density(self, latents: np.ndarray) -> np.ndarray:
        """Return the log density at the latents of each user, (users, size), float64."""
        product = (self._design * latents[self._user]).sum(axis=1)
        value = -np.logaddexp(0, product - self._high) - np.logaddexp(0, self._low - product)
        prior = 0.5 * (self._precision * latents**2).sum(axis=1)
        density: np.ndarray = np.add.reduceat(value, self._given.start[:-1]) - prior
        return density

    def expansion(self, latents: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log density (rows,), gradient (rows, size) and negative Hessian (rows, size, size) of some users."""
        every = np.zeros((len(self._given.start) - 1, latents.shape[1]))
        every[rows] = latents
        density = self.log_density(every)[rows]
        gradient, curvature = -self._precision * latents, np.empty((*latents.shape, latents.shape[1]))
        for place, user in enumerate(rows):
            own = slice(self._given.start[user], self._given.start[user + 1])
            design = self._design[own]
            product = design @ latents[place]
            below, above = sigmoid(self._low[own] - product), sigmoid(product - self._high[own])
            gradient[place] += design.T @ (below - above)
            weight = below * (1 - below) + above * (1 - above)
            curvature[place] = (design * weight[:, None]).T @ design + np.diag(self._precision)
        return density, gradient, curvature
