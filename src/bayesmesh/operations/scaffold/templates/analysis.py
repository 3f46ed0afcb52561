"""Posterior mean and standard deviation of every latent, over all its coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import Field

from bayesmesh.analyses.base import Analysis, Subject
from bayesmesh.analyses.figures.documents import read_table
from bayesmesh.analyses.figures.sections import Section, html_table
from bayesmesh.config.settings import Settings
from bayesmesh.files import write_text

__all__ = ["NewAnalysis", "Options"]


class Options(Settings):
    """Moments of every latent."""

    num_shown: int = Field(20, ge=1, le=10_000, description="Latents that the page shows.")


class NewAnalysis(Analysis):
    """Mean and standard deviation of every latent over draws and coordinates."""

    pretty_name = "New analysis"
    outputs = ("moments.csv",)
    # The draws alone: with "data", data and model are at hand too, as `subject.bound`.
    reads = ("posterior",)
    options: Options

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Pass over the draws once, a block at a time, and write the table."""
        del others
        posterior, rows = subject.posterior, []
        for latent in posterior.latents:
            count, total, square = 0, 0.0, 0.0
            for block in posterior.blocks([latent]):
                values = np.asarray(block[latent], np.float64)
                count, total, square = count + values.size, total + values.sum(), square + np.square(values).sum()
            mean = total / count
            rows.append((latent, mean, np.sqrt(max(square / count - mean**2, 0.0))))
        table = pd.DataFrame(rows, columns=["latent", "mean", "sd"])
        write_text(files["moments.csv"], table.to_csv(index=False))
        return f"{len(table)} latents"

    def section(self, files: Mapping[str, Path]) -> Section:
        """Show the table."""
        table = read_table(files["moments.csv"], texts=("latent",), numbers=("mean", "sd"))
        return Section(html_table(table.head(self.options.num_shown), "Moments of every latent"))
