"""neighbours: films whose embeddings point the same way, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.analyses.base import Analysis, BoundModel, Shapes, Subject, check_chosen
from bayesmesh.analyses.figures.sections import Section
from bayesmesh.analyses.options import NeighboursOptions as Options


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
        from bayesmesh.analyses.neighbours.cosines import KEY, embedding_of

        num_films = latents[embedding_of(bound.model, latents)].shape[0]
        check_chosen(f"{KEY}.films", "film", self.options.films, num_films)

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Compute cosines in every draw and write the largest; return the number of draws as text."""
        from bayesmesh.analyses.neighbours.cosines import find_neighbours

        del others
        return f"{find_neighbours(subject.bound, subject.posterior, self.options, files)} draws"

    def section(self, files: Mapping[str, Path]) -> Section | None:
        """Show the neighbours of each film."""
        from bayesmesh.analyses.neighbours.section import build_section

        return build_section(files)
