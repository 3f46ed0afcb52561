"""Factorisation of ratings, on observed cells only: a row is one user's rating of one film.

Users are groups of rows and their latents are stored with these rows, so that memory and time grow with the number of
ratings, and users are spread over devices. All prior scales are in standard deviations of the ratings or, for ordered
stars, of the logistic noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, Shaped
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.settings import Settings
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.models._outcomes import OrderedValues, log_mass
from bayesmesh.models._redraws import redraw_factors, redraw_level, redraw_noise
from bayesmesh.models.base import (
    Axis,
    DataSpec,
    HostRows,
    Latents,
    Model,
    Predictive,
    Preparation,
    Prior,
    ReadBlocks,
    Regression,
    Rows,
    Shown,
)
from bayesmesh.models.options import RatingFactorizationOptions as Options

tfd = tfp.distributions

FILM, RATING = "film", "rating"
"""Fields that the model reads: the code of the film, and the rating, or its index among the ordered ones."""

LOGISTIC_SD = math.pi / math.sqrt(3)

MOST_LEVELS = 50
"""Largest number of distinct ordered ratings."""

UNKNOWN = 255
"""Code of a rating that is not one of the ordered ones: a placeholder in rows to predict, or a held-out rating."""


class RatingFactorization(Model):
    """A rating is normal: mean + user bias + film bias + user embedding . film embedding, with noise ``sigma``.

    Or it is one of a few ordered values, whose probabilities for an average user and film are ``baseline``, and biases and
    embeddings add to its logits. Reads the columns of user, film and rating. Films without a rating keep their prior.
    """

    pretty_name = "Rating factorisation"
    offers = ("neighbours", "rating_scores")
    folds_in_ratings = True
    options: Options
    local_latents: ClassVar[Mapping[str, int]] = {"user_embeddings": 0, "user_biases": 0}
    blocks: ClassVar[Mapping[str, Mapping[str, int]]] = {"films": {"film_embeddings": 0, "film_biases": 0}}

    @classmethod
    def prepare(cls, options: Settings, spec: DataSpec, read_blocks: ReadBlocks) -> Preparation | None:
        """Sort rows by user, and compute the mean and standard deviation of the ratings.

        Raises:
            ConfigError: a column is missing, of the wrong kind or named twice, or all ratings are equal; names the key.
        """
        own = cast(Options, options)
        if own.levels and (own.likelihood != "ordinal" or len(own.levels) == 1):
            raise ConfigError(
                "key 'model.levels': only `likelihood: ordinal` has levels, two or more of them", "remove it"
            )
        if own.user == own.film:
            raise ConfigError(f"key 'model.film': '{own.film}' is also the column of the user", "name two columns")
        users, _ = user_and_film_levels(spec, own.user, own.film)
        check_rating(spec, own.rating)
        mean, sd = moments(block[own.rating] for block in read_blocks())
        # The mean of equal numbers may differ from them by rounding.
        if sd <= 1e-12 * abs(mean):
            raise ConfigError(f"key 'model.rating': all ratings of '{own.rating}' are {mean:g}", "use another column")
        levels = np.zeros(0)
        if own.likelihood == "ordinal":
            found = distinct_ratings((block[own.rating] for block in read_blocks()), own.rating)
            levels = all_levels(own.levels, own.rating, found, spec.fields[own.rating].dtype)

        def of_rows(rows: HostRows, num_rows: int) -> dict[str, np.ndarray]:
            values, film = np.asarray(rows[own.rating]), np.asarray(rows[own.film])
            if len(levels):
                return {FILM: film, RATING: codes_of(values, levels)}
            # Small integers are exact in float32.
            return {FILM: film, RATING: values.astype(np.result_type(values, np.float32))}

        about = {"rating_mean": mean, "rating_sd": sd}
        return Preparation(of_rows, about, own.user, len(users), arrays={"levels": levels} if len(levels) else {})

    @classmethod
    def check_all_rows(cls, options: Settings, spec: DataSpec, read_blocks: ReadBlocks) -> None:
        """Reject two ratings of one film by the same user, even if the split separates them: one would predict the other.

        Raises:
            ConfigError: names user and film.
        """
        own = cast(Options, options)
        if own.repeated == "refuse":
            users, films = user_and_film_levels(spec, own.user, own.film)
            check_repeated(((block[own.user], block[own.film]) for block in read_blocks()), users, films)

    @property
    def _is_ordinal(self) -> bool:
        return self.options.likelihood == "ordinal"

    def axes(self) -> Mapping[str, tuple[Axis | None, ...]]:
        """Return the names of users and films."""
        user, film = (Axis(name, self._labels(name)) for name in (self.options.user, self.options.film))
        found = {} if not self._is_ordinal else {"baseline": (self._level_axis,)}
        return {
            **found,
            "user_embeddings": (user, None),
            "user_biases": (user,),
            "film_embeddings": (film, None),
            "film_biases": (film,),
        }

    @property
    def _level_axis(self) -> Axis:
        return Axis("level", tuple(f"{value:g}" for value in self.spec.arrays["levels"]))

    def _labels(self, name: str) -> tuple[str, ...]:
        return self.spec.variables[name].levels

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return the prior of ``mean`` and ``sigma``, or ``baseline``, and of biases and embeddings of users and films."""
        own, width = self.options, self.options.width
        num_users, num_films = data_spec.num_entries, len(self._labels(own.film))
        zero = jnp.zeros((), data_spec.dtype)
        sd = zero + (LOGISTIC_SD if self._is_ordinal else data_spec.constants["rating_sd"])
        bias = tfd.Normal(zero, own.bias_scale * sd)
        # A product of two embeddings has the variance width times scale to the fourth power.
        embedding = tfd.Normal(zero, jnp.sqrt(own.factor_scale * sd / math.sqrt(width)))
        if self._is_ordinal:
            shared = {"baseline": tfd.Dirichlet(jnp.ones(len(data_spec.arrays["levels"]), data_spec.dtype))}
        else:
            mean = tfd.Normal(zero + data_spec.constants["rating_mean"], sd)
            shared = {"mean": mean, "sigma": tfd.HalfNormal(own.noise_scale * sd)}
        return tfd.JointDistributionNamed(
            {
                **shared,
                "user_embeddings": tfd.Sample(embedding, (num_users, width)),
                "film_embeddings": tfd.Sample(embedding, (num_films, width)),
                "user_biases": tfd.Sample(bias, (num_users,)),
                "film_biases": tfd.Sample(bias, (num_films,)),
            }
        )

    def _outcome(self, predictor: Float[Array, " rows"], latents: Latents) -> Predictive:
        if self._is_ordinal:
            return OrderedValues.of(predictor, latents["baseline"], self._values(predictor.dtype))
        return tfd.Normal(latents["mean"] + predictor, latents["sigma"])

    def _values(self, dtype: str | jnp.dtype) -> Float[Array, " levels"]:
        return jnp.asarray(self.spec.arrays["levels"], dtype)

    def _density(self, predictor: Float[Array, " rows"], latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        if self._is_ordinal:
            return log_mass(predictor, latents["baseline"], rows[RATING].astype(jnp.int32))
        return self._outcome(predictor, latents).log_prob(rows[RATING].astype(predictor.dtype))

    def log_likelihood(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the log density of each rating, in nats."""
        return self._density(_predictor(latents, rows), latents, rows)

    def log_likelihood_and_gradient(
        self, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]
    ) -> tuple[Float[Array, ""], Latents]:
        """Make one gather and one sum by film, with biases as a further column of the embeddings."""
        own = {k: v for k, v in latents.items() if k not in self.local_latents and k not in self.blocks["films"]}
        users, film = latents["user_embeddings"], rows[FILM]
        sides = jnp.concatenate([latents["film_embeddings"], latents["film_biases"][:, None]], axis=1)
        of_films = sides[film]
        films = of_films[:, :-1]
        predictor = latents["user_biases"] + of_films[:, -1] + jnp.sum(users * films, axis=1)

        def total(predictor: Array, own: Latents) -> Float[Array, ""]:
            return jnp.sum(jnp.where(is_row, self._density(predictor, own, rows), 0), dtype=jnp.float64)

        value, (residual, gradient) = jax.value_and_grad(total, (0, 1))(predictor, own)
        residual = residual[:, None]
        by_film = jnp.zeros_like(sides).at[film].add(jnp.concatenate([residual * users, residual], axis=1))
        of_users = {"user_embeddings": residual * films, "user_biases": residual[:, 0]}
        return value, {**gradient, **of_users, "film_embeddings": by_film[:, :-1], "film_biases": by_film[:, -1]}

    @property
    def normal_groups(self) -> tuple[str, ...]:
        """Users given films, and films given users, for normal ratings."""
        return () if self._is_ordinal else ("local", "films")

    def unit_regression(self, group: str, latents: Latents, rows: Rows) -> Regression:
        """Regress each rating, less the mean and the other side's bias, on the other side's embedding and 1."""
        film = rows[FILM].astype(jnp.int32)
        of_films = {k: latents[k][film] for k in self.blocks["films"]}
        given = {**latents, **of_films}
        own, other = ("user", "film") if group == "local" else ("film", "user")
        response = rows[RATING].astype(given["mean"].dtype) - given["mean"] - given[f"{other}_biases"]
        embeddings = given[f"{other}_embeddings"]
        design = {f"{own}_embeddings": embeddings, f"{own}_biases": jnp.ones_like(response)}
        return Regression(design, response, given["sigma"] ** -2, None if group == "local" else film)

    def unit_prior(self, group: str, latents: Latents) -> Float[Array, " unit"]:
        """Return the log prior of each user or film."""
        side = {"local": "user", "films": "film"}[group]
        embeddings, biases = latents[f"{side}_embeddings"], latents[f"{side}_biases"]
        embedding, bias = (scale.astype(biases.dtype) for scale in self._scales)
        return -0.5 * (jnp.sum((embeddings / embedding) ** 2, axis=1) + (biases / bias) ** 2)

    @property
    def _scales(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Standard deviations of embeddings and biases for normal ratings, float64."""
        own, sd = self.options, self.spec.constants["rating_sd"]
        factor, bias = (jnp.asarray(each, jnp.float64) for each in (own.factor_scale, own.bias_scale))
        return jnp.sqrt(factor * sd / math.sqrt(own.width)), bias * sd

    def redraw(self, key: Key[Array, ""], latents: Latents) -> Latents:
        """Redraw what changes no rating: linear maps of the factor space, and shifts between embeddings, biases and mean."""
        key_factors, key_level = jax.random.split(key)
        embedding, bias = self._scales
        factors = {k: latents[k] for k in (*self.local_latents, *self.blocks["films"])}
        moved = {**latents, **redraw_factors(key_factors, factors, embedding, bias)}
        constants = self.spec.constants
        return redraw_level(key_level, moved, bias, constants["rating_mean"], constants["rating_sd"])

    def rest_sums(self, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]) -> Latents:
        """Return sums of the residuals and of their squares."""
        predictor = _predictor(latents, rows)
        residual = rows[RATING].astype(predictor.dtype) - latents["mean"] - predictor
        residual = jnp.where(is_row, residual, 0).astype(jnp.float64)
        return {"residual": residual.sum(), "square": (residual**2).sum()}

    def redraw_rest(self, key: Key[Array, ""], latents: Latents, sums: Latents) -> Latents:
        """Draw the mean and the noise."""
        centre, sd = self.spec.constants["rating_mean"], self.spec.constants["rating_sd"]
        noise_scale = jnp.asarray(self.options.noise_scale, jnp.float64) * sd
        return redraw_noise(key, latents, sums, self.spec.num_rows, centre, sd, noise_scale)

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of each row's rating, in its unit."""
        return self._outcome(_predictor(latents, inputs), latents)

    def outcome(self, rows: Rows) -> Shaped[Array, " rows"]:
        """Return the rating of each row; NaN for a rating that is not among the ordered ones."""
        if not self._is_ordinal:
            return rows[RATING]
        values, level = self._values(self.spec.dtype), rows[RATING].astype(jnp.int32)
        return jnp.where(level < len(values), values[jnp.minimum(level, len(values) - 1)], jnp.nan)

    def shown(self) -> Sequence[Shown]:
        """Return the latents that all ratings share, and expectations at probe cells: embeddings may rotate."""
        own = self.options
        cells = Shown("expected", f"Expected {own.rating} of some pairs of {own.user} and {own.film}")
        if self._is_ordinal:
            return Shown(
                "baseline", f"Shares of the values of {own.rating} for an average {own.user} and {own.film}"
            ), cells
        unit = f"in the unit of {own.rating}"
        return (
            Shown("mean", f"Mean {own.rating} of an average {own.user} and {own.film}, {unit}"),
            Shown("sigma", f"Standard deviation of the noise, {unit}"),
            cells,
        )

    def described(self) -> Mapping[str, object]:
        """Return the assumptions of the model."""
        own = self.options
        kind = "ordered, cumulative logit" if self._is_ordinal else "normal about the expectation"
        unit = "the logistic noise" if self._is_ordinal else "the ratings"
        of = (
            f"in standard deviations of {unit}, biases normal(0, {own.bias_scale:g}), and products of embeddings of width "
            f"{own.width} with standard deviation {own.factor_scale:g}"
        )
        link = f"bias of the {own.user} plus bias of the {own.film} plus the product of both embeddings, around what all ratings share"
        return {
            "facts": {"Outcome": f"{own.rating}, {kind}: {link}", "Priors": of},
            "meanings": {
                f"mean_{side}_bias": f"mean bias over the levels of {name}"
                for side, name in (("user", own.user), ("film", own.film))
            },
            "cells": {"expected": (own.user, own.film)},
        }

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return what is invariant to rotations of the embeddings: expected ratings, and moments of the biases."""
        found = {f"mean_{side}_bias": latents[f"{side}_biases"].mean() for side in ("user", "film")}
        shared = {k: v for k, v in latents.items() if k in ("mean", "sigma", "baseline")}
        expected = self._outcome(_predictor(latents, rows), latents).mean()  # type: ignore[attr-defined]  # both have one
        return {**shared, **found, "expected": expected}


def _predictor(latents: Latents, rows: Rows) -> Float[Array, " rows"]:
    """Return the contribution of user and film to the mean, or to the logits, of each rating."""
    film = rows[FILM]
    products = jnp.sum(latents["user_embeddings"] * latents["film_embeddings"][film], axis=1)
    return latents["user_biases"] + latents["film_biases"][film] + products


def user_and_film_levels(spec: DataSpec, user: str, film: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the users and of the films."""
    named = {"user": user, "film": film}
    for key, name in named.items():
        if name not in spec.fields:
            raise ConfigError(f"key 'model.{key}': the data have no field '{name}'", suggest(name, spec.fields))
    plain = {
        k: name for k, name in named.items() if name not in spec.variables or spec.variables[name].kind != "category"
    }
    if plain:
        # Report both at once: each error costs the user a run.
        key, name = next(iter(plain.items()))
        types = ", ".join(f"{each}: category" for each in plain.values())
        remedy = f"with the source table, write\n    data:\n      types: {{{types}}}"
        raise ConfigError(f"key 'model.{key}': '{name}' is not a category", remedy)
    users, films = (spec.variables[name].levels for name in named.values())
    return users, films


def check_rating(spec: DataSpec, name: str) -> None:
    if name not in spec.fields:
        raise ConfigError(f"key 'model.rating': the data have no field '{name}'", suggest(name, spec.fields))
    about, field = spec.variables.get(name), spec.fields[name]
    if field.shape != () or (about is not None and about.kind != "number"):
        raise ConfigError(f"key 'model.rating': '{name}' is not one number for each row", "use a column of numbers")


def distinct_ratings(blocks: Iterator[np.ndarray], name: str) -> np.ndarray:
    """Return the distinct ratings, ascending, float64."""
    found = np.zeros(0)
    for block in blocks:
        found = np.union1d(found, np.asarray(block, np.float64))
        if len(found) > MOST_LEVELS:
            problem = f"'{name}' has more than {MOST_LEVELS} different values"
            raise ConfigError(f"key 'model.likelihood': {problem}", "use `likelihood: gaussian`, or round the ratings")
    return found


def all_levels(given: Sequence[float], name: str, found: np.ndarray, dtype: str) -> np.ndarray:
    """Return the possible ratings, ascending, float64.

    Args:
        given: ratings listed in the options.
        name: the column of the ratings.
        found: ratings of the training rows.
        dtype: dtype of the column, to which given numbers are rounded: 0.1 in float32 differs from 0.1.

    Raises:
        ConfigError: a rating of the training rows is not among them.
    """
    if not given:
        return found
    stored = np.asarray(given, dtype) if np.dtype(dtype).kind == "f" else np.asarray(given)
    levels = np.unique(stored.astype(np.float64))
    if (missing := np.setdiff1d(found, levels)).size:
        problem = f"'{name}' is {missing[0]:g} in a training row, which is not among them"
        raise ConfigError(f"key 'model.levels': {problem}", f"add it, or leave the key out: {found.tolist()}")
    return levels


def codes_of(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the index of each rating among the levels, uint8; `UNKNOWN` for any other number."""
    wide = np.asarray(values, np.float64)
    codes = np.minimum(np.searchsorted(levels, wide), len(levels) - 1)
    return np.where(levels[codes] == wide, codes, UNKNOWN).astype(np.uint8)


def check_repeated(blocks: Iterator[tuple[np.ndarray, np.ndarray]], users: Sequence[str], films: Sequence[str]) -> None:
    """Reject two ratings of one film by the same user; takes 8 bytes per rating."""
    cells = np.concatenate([np.asarray(user, np.int64) * len(films) + film for user, film in blocks])
    cells.sort()
    again = cells[1:][cells[1:] == cells[:-1]]
    if again.size:
        user, film = divmod(int(again[0]), len(films))
        problem = f"user '{users[user]}' has rated '{films[film]}' more than once, and there are {again.size:,} such ratings in all"
        remedy = "keep one rating of each user and film in the table, or write\n    model:\n      repeated: keep"
        raise ConfigError(f"key 'model.user': {problem}", remedy)


def moments(blocks: Iterator[np.ndarray]) -> tuple[float, float]:
    """Return the mean and standard deviation of all values, by Chan's blockwise update."""
    count, mean, squares = 0, 0.0, 0.0
    for block in blocks:
        values = np.asarray(block, np.float64)
        own, total = float(values.mean()), count + len(values)
        squares += float(np.square(values - own).sum()) + (own - mean) ** 2 * count * len(values) / total
        mean += (own - mean) * len(values) / total
        count = total
    return mean, math.sqrt(squares / count)
