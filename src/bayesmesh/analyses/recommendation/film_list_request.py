"""Common parts of film lists for one user, whether by watches or by ratings: the experiment, the order, the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayesmesh.analyses.recommendation.film_list import INTERVAL, ListedFilm, Order
from bayesmesh.data.base import Column
from bayesmesh.data.shards import Shards
from bayesmesh.diagnostics.verdict import read_verdict
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.store.layout import ExperimentLayout

MAX_DRAWS = 150
"""Number of draws for a new user, whose latents are sampled for each draw of the films."""

MAX_DRAWS_OF_KNOWN = 1000

MAX_CELLS = 2**24
"""Largest number of values in memory, draws x films."""

LEAST_ACCEPTANCE = 0.1

SEED = 0
"""Seed of the sampler and of the Thompson draw: the same command gives the same list."""


class Asked(NamedTuple):
    """Settings of a list.

    Attributes:
        num_films: films to list.
        depth: number of films that count as "among the first".
        order: of the list.
    """

    num_films: int = 10
    depth: int = 10
    order: Order = "mean"


class Opened(NamedTuple):
    """An experiment with a posterior, compared with the records of its jobs.

    Attributes:
        shards: its data, as the source has them.
        is_of_ratings: whether its data are ratings rather than a watch matrix.
        options: of the model.
    """

    shards: Shards
    is_of_ratings: bool
    options: Any


def find_user(user_id: str, names: Sequence[str], experiment: str) -> int:
    """Return the position of a user among the users of the data.

    Raises:
        ConfigError: there is no such user.
    """
    if user_id not in names:
        about = f"users are {names[0]} to {names[-1]}" if len(names) > 20 else suggest(user_id, names)
        raise ConfigError(f"--user {user_id}: no such user in the data of '{experiment}'", about)
    return names.index(user_id)


def most_draws(wanted: int, num_films: int) -> int:
    """Return how many draws to read, at most `wanted`."""
    return max(1, min(wanted, MAX_CELLS // num_films))


def draws_of(count: int, posterior: Any) -> str:
    """Say how many draws were read, and the probability of the intervals."""
    total = posterior.num_chains * posterior.num_draws
    return f"{count} of {total} draws; intervals of probability {INTERVAL:g}"


def doubts(layout: ExperimentLayout, acceptance: float = 1.0) -> tuple[str, ...]:
    """Return warnings if the posterior's verdict is not a pass, or a new user's sampler accepted few proposals."""
    said: tuple[str, ...] = ()
    if not layout.verdict.exists():
        said = (f"{layout.experiment}: no verdict on the posterior yet",)
    elif (outcome := read_verdict(layout.verdict).verdict) != "pass":
        said = (f"{layout.experiment}: the verdict on the posterior is '{outcome}'",)
    if acceptance < LEAST_ACCEPTANCE:
        few = f"the sampler of the new user accepted {acceptance:.0%} of its proposals"
        said += (f"{few}: take the list as approximate",)
    return said


def list_rows(
    listed: Sequence[ListedFilm], columns: Mapping[str, Column], is_held_out: np.ndarray
) -> list[dict[str, Any]]:
    """Return the rows of a list.

    Args:
        listed: the films, in order.
        columns: of the dataset: ids, titles and genres of the films, as far as it has them.
        is_held_out: (films,) bool, films of the user that were held out from the chains.
    """
    ids, titles, genres = (columns.get(name) for name in ("film_id", "title", "genres"))
    rows: list[dict[str, Any]] = []
    for rank, film in enumerate(listed, 1):
        names = genres[film.film] if genres else ()
        about = {
            "rank": rank,
            "film_id": ids[film.film] if ids else film.film,
            "title": titles[film.film] if titles else "",
            "genres": "|".join(names if not isinstance(names, str | int) else [str(names)]),
        }
        numbers = {name: value for name, value in film._asdict().items() if name != "film"}
        rows.append({**about, **numbers, "held_out": bool(is_held_out[film.film])})
    return rows
