"""Sample the latents of users whom the chains have not seen, given draws of the films' latents.

Given the films, a user's embedding and bias have the posterior of a Bayesian logistic regression: one observation for each
film, watched or not, and independent normal priors. For every draw of the films, Newton steps find the mode, and an
independence sampler (Metropolis-Hastings) with proposals from a Student t at the mode draws from the posterior itself. Its
first state is a proposal, and its last one is kept. The films' posterior stays that of the training users.

Only NumPy is used; products of users x films are float32, factors are float64.

References:
    Tierney 1994, "Markov chains for exploring posterior distributions", doi:10.1214/aos/1176325750, for the sampler.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float

from bayesmesh.analyses.fold_in.draws import FactorDraws

NUM_PROPOSALS = 8
"""Proposals for each user and draw of the films; see `FoldedUsers.acceptance` for whether they suffice."""

DEGREES_PER_LATENT = 1.5
"""Degrees of freedom of the proposals, at least `MIN_DEGREES`. The tails are heavier than those of the normal prior, so
that no point is proposed too seldom; the more latents a user has, the more such tails lower the acceptance rate."""

MIN_DEGREES = 4.0

MAX_NEWTON_STEPS = 60

STEP_TOLERANCE = 0.1
"""Length of the last Newton step, in posterior standard deviations; the sampler corrects what is left."""

TILE_CELLS = 2**20
"""Largest number of users x films in memory at a time, for the logits and a few float32 arrays of the same size."""

_FACTORS = 16


class Films(NamedTuple):
    """One draw of the films' latents as a regression of watches on a user's latents.

    Attributes:
        design: (films, size), embeddings and a last column of ones for the user's bias.
        offset: (films,), the films' biases.
    """

    design: Float[np.ndarray, "films size"]
    offset: Float[np.ndarray, " films"]


class FoldedUsers(NamedTuple):
    """One draw of the latents of new users.

    Attributes:
        latents: (users, size) float64, embeddings and the bias.
        mode: (users, size) float64, where the posterior given this draw of the films is largest.
        acceptance: (users,) float64, share of accepted proposals after the first.
    """

    latents: Float[np.ndarray, "users size"]
    mode: Float[np.ndarray, "users size"]
    acceptance: Float[np.ndarray, " users"]


def films_of(embeddings: Float[np.ndarray, "films width"], biases: Float[np.ndarray, " films"]) -> Films:
    """Return a draw of the films' latents as a regression, float32."""
    ones = np.ones((len(biases), 1), np.float32)
    return Films(np.concatenate([embeddings.astype(np.float32), ones], axis=1), biases.astype(np.float32))


def fold_in(
    films: Films,
    watched: Bool[np.ndarray, "users films"],
    prior_scale: float,
    generator: np.random.Generator,
    *,
    start: Float[np.ndarray, "users size"] | None = None,
    num_proposals: int = NUM_PROPOSALS,
) -> FoldedUsers:
    """Draw the latents of new users given one draw of the films' latents.

    Args:
        films: the draw.
        watched: films that each user watched; all others count as not watched.
        prior_scale: standard deviation of the prior of a user's latents.
        generator: random numbers.
        start: where Newton's method starts, such as `carried` returns; zeros if None.
        num_proposals: see `NUM_PROPOSALS`.

    Returns:
        See `FoldedUsers`.
    """
    users = len(watched)
    tile = max(1, TILE_CELLS // len(films.design))
    begin = np.zeros((users, films.design.shape[1])) if start is None else start
    # Products of the columns, so that the curvature of many users is one matrix product.
    pairs = _pairs(films.design) if users > films.design.shape[1] else None
    parts = []
    for first in range(0, users, tile):
        some = slice(first, first + tile)
        posterior = _Posterior(films, pairs, watched[some], prior_scale)
        mode, factor = find_mode(posterior, begin[some])
        latents, acceptance = sample_at_mode(posterior, mode, factor, generator, num_proposals)
        parts.append(FoldedUsers(latents, mode, acceptance))
    return FoldedUsers(*map(np.concatenate, zip(*parts, strict=True)))


def find_modes(
    films: Films, watched: np.ndarray, prior_scale: float, start: np.ndarray, max_steps: int = MAX_NEWTON_STEPS
) -> np.ndarray:
    """Return the modes of the latents of users given the films, (users, size) float64; see `fold_in`."""
    tile, pairs = max(1, TILE_CELLS // len(films.design)), _pairs(films.design)
    found = []
    for first in range(0, len(watched), tile):
        some = slice(first, first + tile)
        posterior = _Posterior(films, pairs, watched[some], prior_scale)
        found.append(find_mode(posterior, start[some], max_steps)[0])
    return np.concatenate(found)


def carried(old: Films, new: Films, latents: Float[np.ndarray, "users size"]) -> Float[np.ndarray, "users size"]:
    """Return the latents whose logits with other films are nearest to those with the old films, by least squares.

    Embeddings rotate from draw to draw, but the logits hardly change.
    """
    design = new.design.astype(np.float64)
    gram = design.T @ design + np.eye(design.shape[1])
    turned = np.linalg.solve(gram, design.T @ old.design)
    shift = np.linalg.solve(gram, design.T @ (old.offset - new.offset))
    return latents @ turned.T + shift


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Return probabilities from logits, in their dtype.

    >>> sigmoid(np.array([-1e4, 0.0, 1e4])).tolist()
    [0.0, 0.5, 1.0]
    """
    # An infinite exponential gives the limit, 0.
    with np.errstate(over="ignore"):
        decay = np.exp(-logits)
    decay += 1
    probability: np.ndarray = np.reciprocal(decay, out=decay)
    return probability


class LogConcave(Protocol):
    """A log-concave posterior of some users, up to a constant."""

    def log_density(self, latents: np.ndarray) -> np.ndarray:
        """Return the log density at the latents of each user, (users, size), float64."""
        ...

    def expansion(self, latents: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log density (rows,), gradient (rows, size) and negative Hessian (rows, size, size) of some users."""
        ...


class _Posterior:
    """The posterior of some users given one draw of the films, up to a constant."""

    def __init__(self, films: Films, pairs: np.ndarray | None, watched: np.ndarray, prior_scale: float) -> None:
        self._films, self._pairs, self._precision = films, pairs, prior_scale**-2
        # The watched films enter through these sums alone. Half of all logits is subtracted: see `_log_density`.
        self._linear = (watched.astype(np.float32) @ films.design).astype(np.float64)
        self._halved = self._linear - 0.5 * films.design.sum(axis=0, dtype=np.float64)
        self._half_offset = 0.5 * films.offset.sum(dtype=np.float64)
        # Allocating memory of this size costs more than the computation in it.
        self._work = [np.empty((len(watched), len(films.offset)), np.float32) for _ in range(2)]

    def log_density(self, latents: np.ndarray) -> np.ndarray:
        """Return the log density at the latents of each user, (users, size), float64."""
        distance = np.abs(self._logits(latents))
        total = distance.sum(axis=1, dtype=np.float64)
        decay = np.exp(np.negative(distance, out=distance), out=distance)
        return self._log_density(latents, total, decay, slice(None))

    def expansion(self, latents: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log density (rows,), gradient (rows, size) and negative Hessian (rows, size, size) of some users."""
        logits = self._logits(latents)
        is_negative = logits < 0
        distance = np.abs(logits, out=logits)
        total = distance.sum(axis=1, dtype=np.float64)
        decay = np.exp(np.negative(distance, out=distance), out=distance)
        log_density = self._log_density(latents, total, decay, rows)
        share = np.add(decay, 1, out=self._work[1][: len(decay)])
        np.reciprocal(share, out=share)
        weights = np.multiply(decay, share, out=decay)  # the smaller of the two probabilities
        curved = weights * share
        np.copyto(share, weights, where=is_negative)
        gradient = self._linear[rows] - share @ self._films.design - self._precision * latents
        weights = curved
        size = latents.shape[1]
        if self._pairs is None:
            design = self._films.design
            curvature = np.stack([(design * weight[:, None]).T @ design for weight in weights]).astype(np.float64)
        else:
            upper = np.triu_indices(size)
            curvature = np.empty((len(latents), size, size))
            curvature[:, *upper] = weights @ self._pairs
            curvature[:, *upper[::-1]] = curvature[:, *upper]
        return log_density, gradient, curvature + self._precision * np.eye(size)

    def _log_density(
        self, latents: np.ndarray, total: np.ndarray, decay: np.ndarray, rows: np.ndarray | slice
    ) -> np.ndarray:
        """Return the log density from the sums of |logit| and from exp(-|logit|).

        log(1 + exp(x)) is x / 2 + |x| / 2 + log(1 + exp(-|x|)). The sum of x is linear in the latents, and the last terms are
        logs of products of `_FACTORS` factors of at most 2.
        """
        films = decay.shape[1]
        whole = films - films % _FACTORS
        factors = np.add(decay, 1, out=self._work[1][: len(decay)])
        products = np.multiply.reduce(factors[:, :whole].reshape(len(decay), _FACTORS, -1), axis=1)
        logs = np.log(products).sum(axis=1, dtype=np.float64) + np.log1p(decay[:, whole:]).sum(axis=1, dtype=np.float64)
        prior = 0.5 * self._precision * (latents**2).sum(axis=1)
        return (self._halved[rows] * latents).sum(axis=1) - self._half_offset - 0.5 * total - logs - prior

    def _logits(self, latents: np.ndarray) -> np.ndarray:
        logits = self._work[0][: len(latents)]
        np.matmul(latents.astype(np.float32), self._films.design.T, out=logits)
        logits += self._films.offset
        return logits


def _pairs(design: np.ndarray) -> np.ndarray:
    """Return products of the columns of a design, (films, pairs), for the upper triangle."""
    one, other = np.triu_indices(design.shape[1])
    return design[:, one] * design[:, other]


def find_mode(
    posterior: LogConcave, start: np.ndarray, max_steps: int = MAX_NEWTON_STEPS
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mode of every user and the Cholesky factor of the negative Hessian near it.

    The log density is concave. A step that lowers it is halved.
    """
    latents = np.array(start, np.float64)
    active = np.arange(len(latents))
    density, gradient, curvature = posterior.expansion(latents, active)
    step = _newton_step(curvature, gradient)
    for _ in range(max_steps):
        tried = latents[active] + step[active]
        found = posterior.expansion(tried, active)
        # Float32 products leave noise of this size.
        is_lower = found[0] < density[active] - 1e-5 * np.abs(density[active]) - 1e-3
        step[active[is_lower]] /= 2
        moved = active[~is_lower]
        latents[moved], density[moved] = tried[~is_lower], found[0][~is_lower]
        gradient[moved], curvature[moved] = found[1][~is_lower], found[2][~is_lower]
        step[moved] = _newton_step(curvature[moved], gradient[moved])
        length = np.sqrt((gradient[moved] * step[moved]).sum(axis=1))
        done = moved[length < STEP_TOLERANCE]
        # The last step needs no further expansion.
        latents[done] += step[done]
        active = np.setdiff1d(active, done)
        if not len(active):
            break
    return latents, np.linalg.cholesky(curvature)


def _newton_step(curvature: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    step: np.ndarray = np.linalg.solve(curvature, gradient[..., None])[..., 0]
    return step


def sample_at_mode(
    posterior: LogConcave, mode: np.ndarray, factor: np.ndarray, generator: np.random.Generator, num_proposals: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the last state of an independence sampler for every user, and the share of accepted proposals."""
    users, size = mode.shape
    normal = generator.standard_normal((users, num_proposals, size))
    degrees = max(MIN_DEGREES, DEGREES_PER_LATENT * size)
    radius = np.sqrt(degrees / generator.chisquare(degrees, (users, num_proposals)))
    scaled = normal * radius[..., None]
    shifts = np.linalg.solve(np.swapaxes(factor, 1, 2)[:, None], scaled[..., None])[..., 0]
    points = mode[:, None] + shifts
    density = np.stack([posterior.log_density(points[:, place]) for place in range(num_proposals)], axis=1)
    proposal = -0.5 * (degrees + size) * np.log1p((scaled**2).sum(axis=-1) / degrees)
    weight = density - proposal
    threshold = np.log(generator.random((users, num_proposals)))
    state = np.zeros(users, np.int64)
    accepted = np.zeros(users)
    every = np.arange(users)
    for place in range(1, num_proposals):
        is_accepted = threshold[:, place] < weight[:, place] - weight[every, state]
        state[is_accepted] = place
        accepted += is_accepted
    return points[every, state], accepted / max(1, num_proposals - 1)


NUM_RUNS = 4
"""Number of runs of consecutive draws; each run starts the search for its first mode at zero."""

SEED = 1


class FoldedDraw(NamedTuple):
    """The new users in one draw of the films.

    Attributes:
        place: position of the draw.
        films: all films.
        latents: (users, size) float64.
        acceptance: (users,).
    """

    place: int
    films: Films
    latents: np.ndarray
    acceptance: np.ndarray

    def logits(self) -> np.ndarray:
        """Return the logits of all films, (users, films) float32."""
        logits: np.ndarray = self.latents.astype(np.float32) @ self.films.design.T
        logits += self.films.offset
        return logits


def over_draws[T](num_draws: int, work: Callable[[range], T]) -> list[T]:
    """Apply a function to each run of draws, in as many threads as there are cores, and return the results.

    NumPy's products and functions release the GIL.
    """
    bounds = np.linspace(0, num_draws, min(NUM_RUNS, num_draws) + 1).round().astype(int)
    runs = [range(int(start), int(stop)) for start, stop in itertools.pairwise(bounds)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(work, runs))


def fold_in_run(
    draws: FactorDraws,
    run: range,
    watched: np.ndarray,
    prior_scale: float,
    observed: np.ndarray | None = None,
    *,
    generator: np.random.Generator | None = None,
    num_proposals: int = NUM_PROPOSALS,
) -> Iterator[FoldedDraw]:
    """Yield new users in each draw of a run.

    Args:
        draws: of the films.
        run: positions of consecutive draws.
        watched: (users, films) bool; only of `observed` films, if given.
        prior_scale: standard deviation of the prior of a user's latents.
        observed: films of which it is known whether a user watched them; all if None.
        generator: random numbers of all draws; None for those of the position of each draw, whatever the run.
        num_proposals: see `NUM_PROPOSALS`.
    """
    old: tuple[Films, np.ndarray] | None = None
    for place in run:
        films = films_of(draws.film_embeddings[place], draws.film_biases[place])
        seen = films if observed is None else Films(films.design[observed], films.offset[observed])
        start = None if old is None else carried(old[0], seen, old[1])
        random = generator or np.random.default_rng([SEED, place])
        found = fold_in(seen, watched, prior_scale, random, start=start, num_proposals=num_proposals)
        old = seen, found.mode
        yield FoldedDraw(place, films, found.latents, found.acceptance)
