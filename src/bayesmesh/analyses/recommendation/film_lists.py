"""Rank films for one user, of the data or new, from draws in memory, and show, write and explain the list.

The value of a film is the probability that the user watches it, from its logit, or the expected rating.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bayesmesh.analyses.figures.documents import render_csv
from bayesmesh.analyses.fold_in.draws import FactorDraws
from bayesmesh.analyses.fold_in.watches import fold_in_run, sigmoid
from bayesmesh.data.base import Column
from bayesmesh.data.shards import Shards
from bayesmesh.diagnostics.verdict import read_verdict
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.files import write_text
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.posterior.reader import Posterior

Order = Literal["mean", "best", "thompson"]
"""``mean``: by the posterior mean of the value. ``best``: by the share of draws in which the film ranks first.
``thompson``: by the values of a single draw, chosen at random, so that uncertain films get their turn."""

INTERVAL = 0.9
"""Probability of the intervals."""


class ListedFilm(NamedTuple):
    """A film in a user's list.

    Attributes:
        film: column of the watch matrix, or code of the film.
        mean, low, high: posterior mean of the value and its central interval of probability `INTERVAL`.
        p_best: share of draws in which it ranks first among the films that may be listed.
        p_top: share of draws in which it is among the first `top`.
    """

    film: int
    mean: float
    low: float
    high: float
    p_best: float
    p_top: float


def list_films(
    scores: np.ndarray,
    is_known: np.ndarray,
    num_films: int,
    top: int,
    order: Order,
    generator: np.random.Generator,
    to_value: Callable[[np.ndarray], np.ndarray] = sigmoid,
) -> list[ListedFilm]:
    """Return the first films of a user; ties go to the lower column.

    Args:
        scores: (draws, films), of one user: logits, or expected ratings.
        is_known: (films,) bool, films that are not listed.
        num_films: films to list; fewer if the user has fewer left.
        top: depth of ``p_top``.
        order: see `Order`.
        generator: chooses the draw of ``thompson``.
        to_value: increasing map of scores to the values of `ListedFilm`.
    """
    candidates = np.flatnonzero(~is_known)
    if not len(candidates):
        return []
    chosen = scores[:, candidates]
    depth = min(top, len(candidates))
    ranked = np.argsort(-chosen, axis=1, kind="stable")[:, :depth]
    p_best = np.bincount(ranked[:, 0], minlength=len(candidates)) / len(chosen)
    p_top = np.bincount(ranked.ravel(), minlength=len(candidates)) / len(chosen)
    mean = to_value(chosen).mean(axis=0, dtype=np.float64)
    keys: dict[Order, Sequence[np.ndarray]] = {
        "mean": (-mean,),
        "best": (-mean, -p_top, -p_best),
        "thompson": (-chosen[generator.integers(len(chosen))],),
    }
    listed = np.lexsort(keys[order])[:num_films]
    # Quantiles commute with an increasing map.
    tail = (1 - INTERVAL) / 2
    low, high = to_value(np.quantile(chosen[:, listed], [tail, 1 - tail], axis=0))
    numbers = zip(candidates[listed], mean[listed], low, high, p_best[listed], p_top[listed], strict=True)
    return [ListedFilm(int(film), *map(float, rest)) for film, *rest in numbers]


NUM_PROPOSALS = 32
"""Proposals for each draw of the films; for one user they cost little."""


class NewUser(NamedTuple):
    """Draws of a new user.

    Attributes:
        logits: (draws, films) float32.
        acceptance: share of accepted proposals.
    """

    logits: np.ndarray
    acceptance: float


def known_user(draws: FactorDraws) -> np.ndarray:
    """Return the logits of the user that was read with the films, (draws, films)."""
    product = np.einsum("dfw,dw->df", draws.film_embeddings, draws.user_embeddings)
    return product + draws.film_biases + draws.user_biases[:, None]


def new_user(draws: FactorDraws, is_watched: np.ndarray, prior_scale: float, generator: np.random.Generator) -> NewUser:
    """Return the logits of a new user, one draw of the user's latents for each draw of the films.

    Args:
        draws: of the films.
        is_watched: (films,) bool; all others count as not watched.
        prior_scale: standard deviation of the prior of a user's latents.
        generator: random numbers.
    """
    folded = fold_in_run(
        draws, range(draws.num_draws), is_watched[None], prior_scale, generator=generator, num_proposals=NUM_PROPOSALS
    )
    logits, accepted = zip(*((one.logits()[0], one.acceptance[0]) for one in folded), strict=True)
    return NewUser(np.stack(logits), float(np.mean(accepted)))


MAX_DRAWS = 150
"""Number of draws for a new user, whose latents are sampled for each draw of the films."""

MAX_DRAWS_OF_KNOWN = 1000

MAX_CELLS = 2**24
"""Largest number of values in memory, draws x films."""

LEAST_ACCEPTANCE = 0.1

SEED = 0
"""Seed of the sampler and of the Thompson draw: the same command gives the same list."""


class Request(NamedTuple):
    """What to list.

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
        ConfigError: the user is not in the data.
    """
    if user_id not in names:
        known = f"users are {names[0]} to {names[-1]}" if len(names) > 20 else suggest(user_id, names)
        raise ConfigError(f"--user {user_id}: no such user in the data of '{experiment}'", known)
    return names.index(user_id)


def most_draws(wanted: int, num_films: int) -> int:
    """Return how many draws to read, at most `wanted`."""
    return max(1, min(wanted, MAX_CELLS // num_films))


def doubts(layout: ExperimentLayout, acceptance: float = 1.0) -> tuple[str, ...]:
    """Return warnings if the posterior's verdict is not a pass, or a new user's sampler accepted few proposals."""
    warnings: tuple[str, ...] = ()
    if not layout.verdict.exists():
        warnings = (f"{layout.experiment}: no verdict on the posterior yet",)
    elif (outcome := read_verdict(layout.verdict).verdict) != "pass":
        warnings = (f"{layout.experiment}: the verdict on the posterior is '{outcome}'",)
    if acceptance < LEAST_ACCEPTANCE:
        few = f"the sampler of the new user accepted {acceptance:.0%} of its proposals"
        warnings += (f"{few}: take the list as approximate",)
    return warnings


COLUMNS = ("rank", "film_id", "title", "genres", "mean", "low", "high", "p_best", "p_top", "held_out")


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
        named = (
            rank, ids[film.film] if ids else film.film, titles[film.film] if titles else "",
            "|".join(genres[film.film]) if genres else "",  # type: ignore[arg-type]  # a list of names for each film
        )  # fmt: skip
        rows.append(dict(zip(COLUMNS, (*named, *film[1:], bool(is_held_out[film.film])), strict=True)))
    return rows


class FilmList(NamedTuple):
    """A list of films for one user.

    Attributes:
        about: a sentence about user, draws and intervals.
        rows: the films, in order, with the columns `COLUMNS`.
        depth: of the column ``p_top``.
        warnings: reasons for doubt.
        value: heading of the listed values.
        item: noun for a rated or watched film.
    """

    about: str
    rows: list[dict[str, Any]]
    depth: int
    warnings: tuple[str, ...]
    value: str
    item: str


def film_list(
    layout: ExperimentLayout,
    posterior: Posterior,
    request: Request,
    scores: np.ndarray,
    is_known: np.ndarray,
    columns: Mapping[str, Column],
    who: str,
    *,
    hidden: np.ndarray | None = None,
    acceptance: float = 1.0,
    note: str = "",
    to_value: Callable[[np.ndarray], np.ndarray] = sigmoid,
    value: str = "watch probability",
    item: str = "film",
) -> FilmList:
    """Return the list for one user; see `list_films` and `list_rows`.

    Args:
        layout: files of the experiment.
        posterior: whose draws gave the scores.
        request: what to list.
        scores: (draws, films).
        is_known: (films,) bool, films that are not listed.
        columns: of the dataset.
        who: the user, in words.
        hidden: (films,) bool, films of the user that were held out from the chains; None without any.
        acceptance: share of accepted proposals of the sampler of a new user.
        note: added to the words about draws and intervals.
        to_value: increasing map of scores to values.
        value: heading of the values.
        item: noun for a rated or watched film.
    """
    generator = np.random.default_rng(SEED)
    listed = list_films(scores, is_known, request.num_films, request.depth, request.order, generator, to_value)
    hidden = np.zeros(len(is_known), bool) if hidden is None else hidden
    held_out = f", {hidden.sum()} more held out" if hidden.any() else ""
    draws = f"{len(scores)} of {posterior.num_chains * posterior.num_draws} draws"
    about = f"{who}{held_out}; {draws}; intervals of probability {INTERVAL:g}{note}."
    return FilmList(about, list_rows(listed, columns, hidden), request.depth, doubts(layout, acceptance), value, item)


def as_text(found: FilmList) -> str:
    """Return a list as a table for a terminal."""
    if not found.rows:
        return f"{found.about}\nNo {found.item} is left to list."
    lines = [("", found.item, "genres", found.value, "", "best", f"top {found.depth}"), *map(_cells, found.rows)]
    if not any(row["genres"] for row in found.rows):
        lines = [(*line[:2], *line[3:]) for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_text = [0 < place < len(widths) - 2 for place in range(len(widths))]
    aligned = [
        [
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(cells, widths, is_text, strict=True)
        ]
        for cells in lines
    ]
    return "\n".join([found.about, *("  ".join(cells).rstrip() for cells in aligned)])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    mark = " (held out)" if row["held_out"] else ""
    return (
        str(row["rank"]), f"{row['title'] or row['film_id']}{mark}", row["genres"].replace("|", ", "),
        f"{row['mean']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}", f"{row['p_best']:.1%}", f"{row['p_top']:.1%}",
    )  # fmt: skip


def check_output_name(output: str | None) -> None:
    """Require a file name that ends in .csv or .json."""
    if output is not None and not output.endswith((".csv", ".json")):
        raise ConfigError(f"--output {output}: neither .csv nor .json", "name a file with one of these endings")


def write_list(found: FilmList, output: str) -> None:
    """Write a list as CSV or JSON, depending on the file's extension, atomically."""
    if output.endswith(".json"):
        content = {"about": found.about, "warnings": found.warnings, "films": found.rows}
        write_text(Path(output), json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        return
    write_text(Path(output), render_csv(COLUMNS, ([row[name] for name in COLUMNS] for row in found.rows)))
