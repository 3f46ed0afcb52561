"""Recognise a latent that is also a summary, so that it is listed once."""

from __future__ import annotations

import pandas as pd


def repeats(latent: pd.DataFrame, summaries: pd.DataFrame) -> bool:
    """Return whether a summary of the same name repeats all draws of a latent, judged by their statistics.

    A model may return a latent among its summaries, as `glm` does with the parameters of its family, or another quantity
    under the same name, such as biases less their mean; the latter has other statistics.

    Args:
        latent: rows of summary.csv of one variable.
        summaries: rows of all summaries.
    """
    # Means and deviations tell draws apart; the other statistics are left out of fixed entries of a summary.
    of_both = ["mean", "sd", "index"]
    other = summaries.loc[summaries["variable"] == latent["variable"].iloc[0], of_both].set_index("index")
    own = latent[of_both].set_index("index")
    # Only some coordinates of a large latent may be listed. NaN equals NaN here.
    return bool(own.index.isin(other.index).all()) and own.equals(other.loc[own.index])
