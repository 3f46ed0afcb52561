"""recommend: rank films for one user, of the data or new, from the stored posterior; without JAX, in a second or two."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayesmesh.analyses.recommendation.film_draws import read_factors
from bayesmesh.analyses.recommendation.film_list import INTERVAL, ListedFilm, Order, list_films
from bayesmesh.analyses.recommendation.film_names import find_films, read_watched
from bayesmesh.analyses.recommendation.new_user import known_user, new_user
from bayesmesh.analyses.recommendation.shown_list import FilmList, as_text, check_output_name, write_list
from bayesmesh.config.declarations import read_flag
from bayesmesh.config.experiment import component_options
from bayesmesh.config.registry import component_path, read_options
from bayesmesh.data.base import Column
from bayesmesh.data.shards import Shards
from bayesmesh.data.split import Interactions
from bayesmesh.diagnostics.verdict import read_verdict
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.planning.specs import StageSpec
from bayesmesh.stages.stored_settings import find_spec
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.posterior_reader import open_posterior
from bayesmesh.store.seals import check_output

_log = logging.getLogger("bayesmesh")

MAX_DRAWS = 150
"""Draws for a new user, whose latents are sampled for each draw of the films."""

MAX_DRAWS_OF_KNOWN = 1000

MAX_LOGITS = 2**24
"""Most logits in memory, draws x films."""

LEAST_ACCEPTANCE = 0.1

SEED = 0
"""Seed of the sampler and of Thompson's draw: the same command gives the same list."""


class Asked(NamedTuple):
    """What a list is made of.

    Attributes:
        num_films: films to list.
        depth: of "among the first".
        order: of the list.
    """

    num_films: int = 10
    depth: int = 10
    order: Order = "mean"


def run(arguments: argparse.Namespace) -> int:
    """Print the films for a user, and return the exit code; without a user, run the analysis of the experiment.

    Raises:
        ConfigError: the experiment has no posterior, or its model is not a factorisation; or there is no such user.
        DataError: the file of watched films cannot be read, or a line names no film.
        StoreError: a result is damaged.
    """
    arguments.experiment = arguments.experiment or arguments.name
    if arguments.user is None and arguments.watched is None:
        # Imported here, since it prepares to run with JAX.
        from bayesmesh.stages.job import run as run_job

        return run_job(arguments)
    if arguments.experiment is None:
        raise ConfigError("--user and --watched are not for a specification", "name the experiment instead of --spec")
    if arguments.user is not None and arguments.watched is not None:
        raise ConfigError("--user and --watched are both given", "a user is one of the data, or a new one")
    check_output_name(arguments.output)
    layout = ExperimentLayout(Path("results"), arguments.experiment)
    asked = Asked(arguments.top, arguments.depth, arguments.order)
    if arguments.user is not None:
        found = for_user(layout, arguments.user, asked)
    else:
        found = for_watched(layout, arguments.watched, asked)
    for warning in found.warnings:
        _log.warning("%s", warning)
    print(as_text(found))
    if arguments.output is not None:
        write_list(found, arguments.output)
        _log.info("%s", arguments.output)
    return 0


def for_user(layout: ExperimentLayout, user_id: str, asked: Asked) -> FilmList:
    """Return films for a user of the data, from the user's own draws.

    Args:
        layout: files of the experiment.
        user_id: name of the user in the dataset; a row of the watch matrix where users have none.
        asked: what to list.
    """
    _, shards = _open(layout)
    names = [str(name) for name in shards.columns.get("user_id", range(shards.num_rows))]
    if user_id not in names:
        about = f"users are {names[0]} to {names[-1]}" if len(names) > 20 else suggest(user_id, names)
        raise ConfigError(f"--user {user_id}: no such user in the data of '{layout.experiment}'", about)
    row = names.index(user_id)
    is_watched = shards.read_rows(row, row + 1)["watched"][0] > 0
    held_out = shards.held_out()
    hidden = np.zeros(len(is_watched), bool)
    if isinstance(held_out, Interactions):
        hidden[held_out.indices[held_out.indptr[row] : held_out.indptr[row + 1]]] = True
    posterior = open_posterior(layout.posterior)
    draws = read_factors(posterior, row, _most(MAX_DRAWS_OF_KNOWN, is_watched))
    listed = _list(known_user(draws), is_watched, asked)
    held = f", {hidden.sum()} more held out" if hidden.any() else ""
    about = f"User {user_id}: {is_watched.sum()} films watched{held}; {_draws_of(draws.num_draws, posterior)}."
    return FilmList(about, _rows(listed, shards.columns, hidden), asked.depth, _doubts(layout))


def for_watched(layout: ExperimentLayout, watched: str | Path | Sequence[str], asked: Asked) -> FilmList:
    """Return films for a new user, whose latents are sampled given the films' posterior.

    Args:
        layout: files of the experiment.
        watched: a file with a title or an id on each line, or titles and ids.
        asked: what to list.
    """
    spec, shards = _open(layout)
    num_films = shards.fields["watched"].shape[0]
    if isinstance(watched, str | Path):
        films = read_watched(Path(watched), shards.columns, num_films)
    else:
        named = {f"film {number} of the list": str(text) for number, text in enumerate(watched, 1)}
        films = find_films(named, shards.columns, num_films)
    is_watched = np.zeros(num_films, bool)
    is_watched[films] = True
    posterior = open_posterior(layout.posterior)
    draws = read_factors(posterior, None, _most(MAX_DRAWS, is_watched))
    found = new_user(draws, is_watched, _prior_scale(spec), np.random.default_rng(SEED))
    listed = _list(found.logits, is_watched, asked)
    doubts = _doubts(layout)
    if found.acceptance < LEAST_ACCEPTANCE:
        few = f"the sampler of the new user accepted {found.acceptance:.0%} of its proposals"
        doubts += (f"{few}: take the list as approximate",)
    about = f"New user: {len(films)} films watched; {_draws_of(draws.num_draws, posterior)}."
    return FilmList(about, _rows(listed, shards.columns, np.zeros(num_films, bool)), asked.depth, doubts)


def _open(layout: ExperimentLayout) -> tuple[StageSpec, Shards]:
    """Return the settings of the posterior, and its data, after comparing both with the records of their jobs."""
    spec = find_spec(layout)
    name = spec.model.name
    if not read_flag("model", name, "folds_in"):
        raise ConfigError(
            f"experiment '{layout.experiment}': model '{name}' does not declare `folds_in`",
            "lists for one user need logits that are products of embeddings, as those of matrix_factorization",
        )
    check_output(layout.results, layout.posterior)
    data_layout = spec.model_copy(update={"results": str(layout.results)}).data_layout
    check_output(layout.results, data_layout.sharded)
    return spec, Shards(data_layout.shards)


def _prior_scale(spec: StageSpec) -> float:
    options = read_options(component_path("model", spec.model.name))
    made: Any = options.model_validate(component_options("model", dict(spec.model)))
    return float(made.prior_scale)


def _most(wanted: int, is_watched: np.ndarray) -> int:
    return max(1, min(wanted, MAX_LOGITS // len(is_watched)))


def _list(logits: np.ndarray, is_watched: np.ndarray, asked: Asked) -> list[ListedFilm]:
    generator = np.random.default_rng(SEED)
    return list_films(logits, is_watched, asked.num_films, asked.depth, asked.order, generator)


def _draws_of(count: int, posterior: Any) -> str:
    total = posterior.num_chains * posterior.num_draws
    return f"{count} of {total} draws; intervals of probability {INTERVAL:g}"


def _doubts(layout: ExperimentLayout) -> tuple[str, ...]:
    """Return a sentence where the verdict on the posterior is not a pass."""
    if not layout.verdict.exists():
        return (f"{layout.experiment}: no verdict on the posterior yet",)
    outcome = read_verdict(layout.verdict).verdict
    return () if outcome == "pass" else (f"{layout.experiment}: the verdict on the posterior is '{outcome}'",)


def _rows(listed: Sequence[ListedFilm], columns: Mapping[str, Column], is_held_out: np.ndarray) -> list[dict[str, Any]]:
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
        numbers = {name: round(value, 6) for name, value in film._asdict().items() if name != "film"}
        rows.append({**about, **numbers, "held_out": bool(is_held_out[film.film])})
    return rows
