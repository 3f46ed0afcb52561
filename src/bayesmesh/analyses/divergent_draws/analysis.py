"""divergent_draws: where in the posterior divergences gather."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.analyses.base import Analysis, Subject
from bayesmesh.analyses.figures.sections import Section
from bayesmesh.analyses.options import DivergentDrawsOptions as Options


class DivergentDraws(Analysis):
    """Values of latents, and pairs of them, at which transitions diverge."""

    pretty_name = "Where divergences gather"
    outputs = ("divergent.csv", "pairs.csv", "draws.csv")
    message = "Look for the places of divergences in {experiment}"
    reads = ("posterior",)
    options: Options

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Compare divergent draws with the others, by latent and by pair; return the clearest latent as text."""
        from bayesmesh.analyses.divergent_draws.places import find_places

        del others
        return find_places(subject.posterior, self.options, files)

    def section(self, files: Mapping[str, Path]) -> Section | None:
        """Name the latents and plot the pairs."""
        from bayesmesh.analyses.divergent_draws.section import build_section

        return build_section(files)

    def cell(self, files: Mapping[str, Path]) -> str:
        """Name the latent at which divergences gather most."""
        from bayesmesh.analyses.divergent_draws.section import describe

        return describe(files)
