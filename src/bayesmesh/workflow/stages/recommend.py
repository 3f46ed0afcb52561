"""recommend: rank films for one user, of the data or new, from the stored posterior; without JAX, in a second or two."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bayesmesh.analyses.fold_in.draws import read_factors
from bayesmesh.analyses.recommendation import ratings
from bayesmesh.analyses.recommendation.film_lists import (
    MAX_DRAWS,
    MAX_DRAWS_OF_KNOWN,
    SEED,
    FilmList,
    Opened,
    Request,
    as_text,
    check_output_name,
    film_list,
    find_user,
    known_user,
    most_draws,
    new_user,
    write_list,
)
from bayesmesh.analyses.recommendation.named_films import find_films, read_watched
from bayesmesh.config.declarations import read_trait
from bayesmesh.config.experiment import component_options
from bayesmesh.config.registry import options_class
from bayesmesh.data.shards import Shards
from bayesmesh.data.split import Interactions
from bayesmesh.errors import ConfigError
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.posterior.reader import open_posterior
from bayesmesh.store.records.jobs import check_output
from bayesmesh.workflow.arguments import refuse_overwriting
from bayesmesh.workflow.posterior import find_spec, refuse_overwriting_data

_KEY = "recommendation"

_log = logging.getLogger("bayesmesh")


def run(arguments: argparse.Namespace) -> int:
    """Print the films for a user, and return the exit code; without a user, run the analysis of the experiment.

    Raises:
        ConfigError: the experiment has no posterior, or its model is not a factorisation; or there is no such user.
        DataError: the file of a new user cannot be read, or a line does not fit.
        StoreError: a result is damaged.
    """
    arguments.experiment = arguments.experiment or arguments.name
    given = [key for key in ("user", "watched", "rated") if getattr(arguments, key) is not None]
    if not given:
        # Imported here, since they prepare to run with JAX.
        from bayesmesh.workflow.plan import Plan
        from bayesmesh.workflow.stages.command import run as run_job

        name = arguments.experiment
        if name is not None and _KEY not in Plan(asked=[name]).experiments[name].requested_analyses():
            raise ConfigError(
                f"no user is given, and experiment '{name}' does not ask for scores of rankings",
                "name a user of the data by --user ID, or a new user's file by --rated FILE (ratings) or --watched FILE (watches); for scores of "
                f"rankings of watches, add {_KEY}: {{}} to the experiment",
            )
        return run_job(arguments)
    if arguments.experiment is None:
        raise ConfigError(f"--{given[0]} is not for a specification", "name the experiment instead of --spec")
    if len(given) > 1:
        raise ConfigError(
            f"--{given[0]} and --{given[1]} are both given",
            "give one of them: --user for a user of the data, --watched or --rated for a new one",
        )
    check_output_name(arguments.output)
    if arguments.output is not None and given[0] != "user":
        refuse_overwriting(Path(getattr(arguments, given[0])), Path(arguments.output))
    layout = ExperimentLayout(Path("results"), arguments.experiment)
    if arguments.output is not None:
        refuse_overwriting_data(find_spec(layout), Path(arguments.output))
    request = Request(arguments.top, arguments.depth, arguments.order)
    found = FOR_USERS[given[0]](layout, getattr(arguments, given[0]), request)
    for warning in found.warnings:
        _log.warning("%s", warning)
    print(as_text(found))
    if arguments.output is not None:
        write_list(found, arguments.output)
        _log.info("%s", arguments.output)
    return 0


def for_user(layout: ExperimentLayout, user_id: str, request: Request) -> FilmList:
    """Return films for a user of the data, from the user's own draws.

    Args:
        layout: files of the experiment.
        user_id: name of the user in the dataset; a row of the watch matrix where users have none.
        request: what to list.
    """
    opened = open_experiment(layout)
    if opened.is_of_ratings:
        return ratings.for_user(layout, opened, user_id, request)
    shards = opened.shards
    names = [str(name) for name in shards.columns.get("user_id", range(shards.num_rows))]
    row = find_user(user_id, names, layout.experiment)
    is_watched = shards.read_rows(row, row + 1)["watched"][0] > 0
    held_out = shards.held_out()
    hidden = np.zeros(len(is_watched), bool)
    if isinstance(held_out, Interactions):
        hidden[held_out.indices[held_out.indptr[row] : held_out.indptr[row + 1]]] = True
    posterior = open_posterior(layout.posterior)
    draws = read_factors(posterior, row, most_draws(MAX_DRAWS_OF_KNOWN, len(is_watched)))
    who = f"User {user_id}: {is_watched.sum()} films watched"
    return film_list(layout, posterior, request, known_user(draws), is_watched, shards.columns, who, hidden=hidden)


def for_watched(layout: ExperimentLayout, watched: str | Path | Sequence[str], request: Request) -> FilmList:
    """Return films for a new user, whose latents are sampled given the films' posterior.

    Args:
        layout: files of the experiment.
        watched: a file with a title or an id on each line, or titles and ids.
        request: what to list.
    """
    opened = open_experiment(layout)
    if opened.is_of_ratings:
        raise ConfigError(
            f"--watched: the data of '{layout.experiment}' are ratings, and say nothing of films without one",
            "use --rated FILE, with the columns film and rating; in Python, rated={'Film': 4}",
        )
    shards = opened.shards
    num_films = shards.fields["watched"].shape[0]
    if isinstance(watched, str | Path):
        films = read_watched(Path(watched), shards.columns, num_films)
    else:
        named = {f"film {number} of the list": str(text) for number, text in enumerate(watched, 1)}
        films = find_films(named, shards.columns, num_films)
    is_watched = np.zeros(num_films, bool)
    is_watched[films] = True
    posterior = open_posterior(layout.posterior)
    draws = read_factors(posterior, None, most_draws(MAX_DRAWS, num_films))
    found = new_user(draws, is_watched, float(opened.options.prior_scale), np.random.default_rng(SEED))
    who = f"New user: {len(films)} films watched"
    return film_list(
        layout, posterior, request, found.logits, is_watched, shards.columns, who, acceptance=found.acceptance
    )


def for_rated(layout: ExperimentLayout, rated: str | Path | Mapping[str, float], request: Request) -> FilmList:
    """Return films for a new user, whose latents are sampled given ratings and the films' posterior.

    Args:
        layout: files of the experiment.
        rated: a file with a film and a rating on each line, or title or id -> rating.
        request: what to list.
    """
    opened = open_experiment(layout)
    if not opened.is_of_ratings:
        raise ConfigError(
            f"--rated: the data of '{layout.experiment}' are a watch matrix, without ratings",
            "use --watched FILE, with a title or an id on each line; in Python, watched=['Film']",
        )
    return ratings.for_rated(layout, opened, rated, request)


FOR_USERS = {"user": for_user, "watched": for_watched, "rated": for_rated}
"""Option -> what makes the list."""


def open_experiment(layout: ExperimentLayout) -> Opened:
    """Open the posterior's settings and data.

    Raises:
        ConfigError: there is no posterior, or its model cannot fold in users.
        StoreError: a result is damaged.
    """
    job = find_spec(layout)
    name = job.model.name
    is_of_ratings = read_trait("model", name, "folds_in_ratings", False)
    if not is_of_ratings and not read_trait("model", name, "folds_in", False):
        raise ConfigError(
            f"experiment '{layout.experiment}': model '{name}' declares neither `folds_in` nor `folds_in_ratings`",
            "lists for one user need products of embeddings, as those of matrix_factorization and rating_factorization",
        )
    check_output(layout.results, layout.posterior)
    check_output(layout.results, job.data_layout.sharded)
    # The options of a shipped model are known without importing it, and JAX with it.
    options = options_class("model", job.model.name).model_validate(component_options("model", dict(job.model)))
    return Opened(Shards(job.data_layout.shards), is_of_ratings, options)
