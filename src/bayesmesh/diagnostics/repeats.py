"""List a latent that is also a summary once."""

from __future__ import annotations

import pandas as pd

from bayesmesh.diagnostics.convergence import STATISTICS


def without_repeats(latents: pd.DataFrame, summaries: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of latents but those of arrays whose draws a summary of the same name repeats.

    A model may return a latent among its summaries, as `glm` does with the parameters of its family, or another quantity
    under the same name, such as biases less their mean; the latter has other statistics and stays.

    Args:
        latents, summaries: rows of summary.csv.
    """
    of_both = [*STATISTICS, "index"]
    repeated = []
    for name in sorted(set(latents["variable"]) & set(summaries["variable"])):
        own, other = (
            table.loc[table["variable"] == name, of_both].set_index("index") for table in (latents, summaries)
        )
        # Of many coordinates, only some of a latent are listed. NaN equals NaN.
        if own.index.isin(other.index).all() and own.equals(other.loc[own.index]):
            repeated.append(name)
    return latents[~latents["variable"].isin(repeated)]
