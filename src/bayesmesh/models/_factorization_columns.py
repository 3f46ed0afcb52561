"""Columns of ratings: users, films and values, as `rating_factorization` reads them from the rows of a source."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from bayesmesh.errors import ConfigError, suggest
from bayesmesh.models.base import DataSpec

MOST_LEVELS = 50
"""Largest number of distinct ordered ratings."""

UNKNOWN = 255
"""Code of a rating that is not one of the ordered ones: a placeholder in rows to predict, or a held-out rating."""


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
    """Refuse two ratings of one film by the same user; takes 8 bytes per rating."""
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
