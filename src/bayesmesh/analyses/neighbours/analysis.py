"""neighbours: films whose embeddings point the same way, with intervals.

An orthogonal map of all embeddings changes no logit and no cosine, so cosines are identified although embeddings are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from bayesmesh.analyses.base import Analysis, BoundModel, Shapes, Subject, check_chosen, draw_shapes, unsuitable
from bayesmesh.analyses.figures.documents import read_table, render_csv
from bayesmesh.analyses.figures.sections import Section, render
from bayesmesh.analyses.options import NeighboursOptions as Options
from bayesmesh.files import write_text
from bayesmesh.store.posterior.reader import BLOCK_BYTES, Posterior

if TYPE_CHECKING:
    from bayesmesh.data.shards import Shards
    from bayesmesh.models.base import Model


class Neighbours(Analysis):
    """Films with similar embeddings."""

    pretty_name = "Films that lie close"
    outputs = ("neighbours.csv",)
    message = "Find films of {experiment} that lie close"
    needs_of_source = ("neighbours",)
    needs_of_model = ("neighbours",)
    options: Options

    def check(self, bound: BoundModel, latents: Shapes) -> None:
        """Require a latent (film, width), and that the chosen films exist."""
        num_films = latents[embedding_of(bound.model, latents)].shape[0]
        check_chosen(f"{KEY}.films", "film", self.options.films, num_films)

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Compute cosines in every draw and write the largest; return the number of draws as text."""
        del others
        return f"{find_neighbours(subject.bound, subject.posterior, self.options, files)} draws"

    def section(self, files: Mapping[str, Path]) -> Section | None:
        """Show the neighbours of each film."""
        table = read_table(files["neighbours.csv"], texts=TEXTS, numbers=NUMBERS)
        if table.empty:
            return None
        # By column: several films of a dataset may have one title.
        films = [of_film.to_dict("records") for _, of_film in table.groupby("film", sort=False)]
        template = Path(__file__).with_name("section.html")
        return Section(render(template, films=films, sentence=_sentence(len(table), int((table["q5"] > 0).sum()))))


def _sentence(num_pairs: int, num_clear: int) -> str:
    """Return how many neighbours are close beyond their uncertainty: with an interval above 0, the cosine of unrelated films."""
    if not num_clear:
        return (
            f"None of the {num_pairs} pairs has a clearly positive cosine: all 90% intervals contain 0 or lie below it."
        )
    return f"For {num_clear} of {num_pairs} listed pairs, the 90% interval of the cosine lies above 0."


KEY = "neighbours"

COLUMNS = (
    "film", "film_id", "title", "rank", "neighbour", "neighbour_id", "neighbour_title", "genres", "cosine", "q5", "q95",
    "p_among_closest",
)  # fmt: skip
"""Columns of the table."""

TEXTS = ("film", "film_id", "title", "neighbour_id", "neighbour_title", "genres")
NUMBERS = ("cosine", "q5", "q95", "p_among_closest")
"""Columns that the section shows."""

INTERVAL = (0.05, 0.95)

FILM = "film"
"""Field with the film of each rating."""


def embedding_of(model: Model, latents: Shapes) -> str:
    """Return the latent whose rows are embeddings of films: a block's latent with two axes, films first.

    Raises:
        ConfigError: the model has none.
    """
    for of_block in model.blocks.values():
        for name, axis in of_block.items():
            if axis == 0 and len(latents[name].shape) == 2:
                return name
    raise unsuitable(KEY, f"model {type(model).__name__} has no latent with an embedding for each film")


def cosines(embeddings: np.ndarray, films: np.ndarray) -> np.ndarray:
    """Return cosines between some films and all films, shape (draw, chosen, film); 0 for an embedding of length 0.

    Args:
        embeddings: (draw, film, width).
        films: (chosen,), their rows.

    >>> cosines(np.array([[[1.0, 0.0], [3.0, 4.0], [0.0, -2.0]]]), np.array([0])).round(2)
    array([[[1. , 0.6, 0. ]]])
    """
    length = np.linalg.norm(embeddings, axis=2, keepdims=True)
    unit = np.divide(embeddings, length, out=np.zeros_like(embeddings), where=length > 0)
    return unit[:, films] @ unit.transpose(0, 2, 1)


def find_neighbours(bound: BoundModel, posterior: Posterior, options: Options, files: Mapping[str, Path]) -> int:
    """Write the films that lie closest to each of some, by mean cosine; return the number of draws.

    Memory: a block of embeddings, the cosines of one chunk of draws, and one number for each listed pair and draw.

    Args:
        bound: model and data.
        posterior: the draws.
        options: which films, and how many neighbours.
        files: path of ``neighbours.csv``, written atomically.

    Raises:
        ConfigError: the model has no embeddings, or a chosen film does not exist.
    """
    shapes = draw_shapes(posterior, bound.data_spec.dtype)
    name = embedding_of(bound.model, shapes)
    num_films = shapes[name].shape[0]
    check_chosen(f"{KEY}.films", "film", options.films, num_films)
    chosen = np.array(options.films or _most_watched(bound.shards, options.num_films), np.int64)
    count, most = 0, min(options.num_neighbours, num_films - 1)
    total, among = np.zeros((len(chosen), num_films)), np.zeros((len(chosen), num_films))
    for values in _chunks(posterior, name, chosen, options.draws):
        total += values.sum(axis=0)
        closest = np.argpartition(-values, most - 1, axis=2)[..., :most]
        np.add.at(among, (np.arange(len(chosen))[None, :, None], closest), 1)
        count += len(values)
    ranked = np.argsort(-total, axis=1, kind="stable")[:, :most]
    pairs = np.concatenate([
        np.take_along_axis(values, ranked[None], axis=2)
        for values in _chunks(posterior, name, chosen, options.draws)
    ])  # fmt: skip
    low, high = np.quantile(pairs, INTERVAL, axis=0)
    columns = bound.shards.columns
    ids, titles = columns.get("film_id", range(num_films)), columns.get("title", [""] * num_films)
    # By the contract of a source, the column genres has a list for each film.
    genres = cast("list[list[str]]", columns.get("genres", [[]] * num_films))
    rows = [
        (
            int(film), ids[film], titles[film], rank + 1, int(other), ids[other], titles[other], "|".join(genres[other]),
            total[place, other] / count, low[place, rank], high[place, rank], among[place, other] / count,
        )
        for place, film in enumerate(chosen)
        for rank, other in enumerate(ranked[place])
    ]  # fmt: skip
    write_text(files["neighbours.csv"], render_csv(COLUMNS, rows))
    return count


def _chunks(posterior: Posterior, name: str, films: np.ndarray, draws: int) -> Iterator[np.ndarray]:
    """Yield cosines (draw, chosen, film) of evenly spread draws; that of a film with itself is less than all others."""
    total = posterior.num_chains * posterior.num_draws
    stride, done = -(-total // draws), 0
    for block in posterior.blocks([name], block_bytes=BLOCK_BYTES):
        values = block[name]
        kept = values[posterior.is_kept(done, len(values), stride)]
        size = max(1, BLOCK_BYTES // (8 * len(films) * values.shape[1]))
        for start in range(0, len(kept), size):
            found = cosines(kept[start : start + size].astype(np.float64), films)
            found[:, np.arange(len(films)), films] = -2.0
            yield found
        done += len(values)


def _most_watched(shards: Shards, num_films: int) -> list[int]:
    """Return the films that the most training users watched or rated; ties go to the lower column.

    Raises:
        ConfigError: there are neither watches nor ratings.
    """
    if "watched" in shards.fields:
        counts = sum(block["watched"].sum(axis=0, dtype=np.int64) for block in shards.blocks())
    elif FILM in shards.fields:
        most = max(int(block[FILM].max()) for block in shards.blocks())
        counts = sum(np.bincount(block[FILM], minlength=most + 1) for block in shards.blocks())
    else:
        raise unsuitable(KEY, f"the data have no field 'watched' or '{FILM}' by which to choose films")
    return [int(film) for film in np.argsort(-np.asarray(counts), kind="stable")[:num_films]]
