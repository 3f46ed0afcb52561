"""The functions of `import bayesmesh`; everything that takes time to import is imported when one of them is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd

    from bayesmesh.notebook.comparison import ShownComparison
    from bayesmesh.notebook.films import ShownFilms
    from bayesmesh.notebook.result import Result, ShownVerdict


def sample(
    model: str | Mapping[str, object] | type | Callable[..., object],
    data: object,
    kernel: str | Mapping[str, object] | type = "nuts",
    *,
    draws: int | None = None,
    chains: int | None = None,
    warmup: int | None = None,
    seed: int | None = None,
    name: str | None = None,
    results: str | Path = "results",
    cores: int | None = None,
    progress: bool = True,
    **blocks: object,
) -> Result:
    """Sample from a posterior and return it, with the same draws as the workflow makes from the same settings.

    The stages of the workflow run one after the other, in separate processes. Finished work is not repeated: the same
    call returns at once, a call for more draws extends the chains, and a call after an interruption resumes.

    Args:
        model: name of a model such as ``"glm"``; its settings such as ``{"name": "glm", "formula": "y ~ x"}``; a class
            that derives from `Model`; or a function of the data that returns a PyMC model. Settings may also contain
            functions. Classes and functions may come from a module or from a cell.
        data: a data frame, a mapping of arrays, the path of a file, the name of a source, or settings such as
            ``{"source": "table", "files": frame, "standardise": ["x"]}``.
        kernel: name of a kernel, its settings, or a class that derives from `Kernel`.
        draws: draws per chain after warmup; config/README.md lists the defaults of this and all other settings.
        chains: number of chains.
        warmup: warmup iterations per chain.
        seed: seed for all random numbers of the chains.
        name: name of the results; if not given, one is derived from the settings.
        results: folder of results.
        cores: cores of this machine to use; all by default. On a CPU the cores are the devices, whose number affects rounding.
        progress: whether to show a bar in a notebook or on a terminal.
        **blocks: other keys of an experiment, such as ``compute={"dtype": "float64"}`` or ``gates={"r_hat": 1.02}``.

    Returns:
        The posterior, an `xarray.DataTree`; its folder also holds ``report.html``, and the settings in ``experiment.yaml``.

    Raises:
        ConfigError: a setting is not valid, or the source of code is not available; the message names the key.
        UserError: a stage failed; the message comes from its job.
        KeyboardInterrupt: the call was interrupted; committed draws are kept.
    """
    from bayesmesh.notebook.sample import run_call

    short = {"draws": draws, "chains": chains, "warmup": warmup, "seed": seed}
    return run_call(model, data, kernel, name, Path(results), {**short, **blocks}, cores, is_shown=progress)


def open(name_or_path: str | Path, *, results: str | Path = "results") -> Result:
    """Open the posterior of an experiment from the workflow or from `sample`; arrays are read when they are used.

    Args:
        name_or_path: name of an experiment, its folder, or its ``posterior.zarr``.
        results: folder of results, for a name.

    Raises:
        ConfigError: nothing is stored under the name.
        StoreError: the posterior is missing, damaged or altered.
    """
    from bayesmesh.notebook.result import find_layout, open_result

    return open_result(find_layout(name_or_path, Path(results)))


def verdict(result: Result | str | Path, *, results: str | Path = "results") -> ShownVerdict:
    """Return the verdict on a posterior: every gate with its limit, its worst value and the coordinate of that value.

    Args:
        result: a result, the name of an experiment, or its folder.
        results: folder of results, for a name.

    Raises:
        ConfigError: nothing is stored under the name.
        StoreError: the verdict is missing, damaged, or about an earlier posterior.
    """
    from bayesmesh.notebook.result import layout_of, verdict_of

    return verdict_of(layout_of(result, Path(results)))


def compare(
    *compared: Result | str | Path, results: str | Path = "results", by: Sequence[object] | None = None
) -> ShownComparison:
    """Compare experiments by their scores on the same rows, as `bayesmesh compare` does; nothing is written.

    Args:
        compared: two or more results, names of experiments, or their folders, each with pointwise scores: ``loo={}``.
        results: folder of results, for names.
        by: a value for each training row, in the order of the data; adds stacking weights that vary with it.

    Returns:
        The comparison: ``table``, a data frame with one row per model, the best first; ``weights``, one with a row for each
        value of `by`; and ``sentences``.

    Raises:
        ConfigError: nothing is stored under a name, there are no pointwise scores, or they are for different rows or outcomes.
        StoreError: scores are damaged or altered.
    """
    import numpy as np

    from bayesmesh.notebook.comparison import ShownComparison
    from bayesmesh.notebook.result import layout_of
    from bayesmesh.report.comparison.models import Feature
    from bayesmesh.report.comparison.scores import compare_experiments

    feature = None if by is None else Feature(str(getattr(by, "name", None) or "by"), np.asarray(by))
    return ShownComparison(compare_experiments([layout_of(each, Path(results)) for each in compared], feature))


def predict(
    result: Result | str | Path,
    table: pd.DataFrame,
    *,
    interval: float = 0.9,
    new_levels: bool = False,
    results: str | Path = "results",
) -> pd.DataFrame:
    """Predict the outcome of new rows from the stored posterior of a table's experiment, as `bayesmesh predict` does.

    Args:
        result: a result, the name of an experiment, or its folder.
        table: new rows, with the columns of the experiment's table; that of the outcome may be absent.
        interval: probability of the intervals.
        new_levels: whether groups may have levels that the experiment did not have; their effects are drawn from their population.
        results: folder of results, for a name.

    Returns:
        A data frame with the index of `table`; docs/how-to/prediction.md lists the columns.

    Raises:
        ConfigError: nothing is stored under the name, its source is not a table, or its model does not predict single rows.
        DataError: the new table does not fit; the message names the row.
        StoreError: a result is damaged or altered.
    """
    from bayesmesh.notebook.predictions import predictions_for
    from bayesmesh.notebook.result import layout_of

    return predictions_for(layout_of(result, Path(results)), table, interval, new_levels=new_levels)


def effects(
    result: Result | str | Path,
    *,
    predictions: bool = False,
    comparisons: Sequence[str] | Mapping[str, object] = (),
    slopes: Sequence[str] = (),
    at: Mapping[str, Sequence[object]] | None = None,
    by: Sequence[str] = (),
    cells: pd.DataFrame | None = None,
    weight: str | None = None,
    results: str | Path = "results",
    **settings: object,
) -> pd.DataFrame:
    """Compute effects of predictors from the stored posterior of a table's experiment, as `bayesmesh effects` does.

    Args:
        result: a result, the name of an experiment, or its folder.
        predictions: whether to predict the expected outcome, or the probability of each level.
        comparisons: columns to compare at two values, as a list or with a step each, such as ``{"age": 10, "site": "pairwise"}``;
            all predictors if nothing is asked for.
        slopes: columns of numbers whose derivative is computed.
        at: column -> values at which effects are evaluated, with other columns at what is typical.
        by: categories within whose levels rows are averaged.
        cells: rows to average in place of the training rows, for poststratification.
        weight: column of `cells` with their sizes.
        results: folder of results, for a name.
        **settings: other keys of ``effects``, such as ``measure="ratio"`` or ``average=False``; config/README.md lists them.

    Returns:
        A data frame with a line for each effect; docs/how-to/effects.md explains the columns.

    Raises:
        ConfigError: nothing is stored under the name, its source is not a table, or a setting does not fit the data.
        DataError: the cells do not fit; the message names the row.
        StoreError: a result is damaged or altered.
    """
    from bayesmesh.notebook.predictions import effects_for
    from bayesmesh.notebook.result import layout_of

    lists = {"slopes": slopes, "by": by}
    given = {"predictions": predictions, "at": dict(at or {}), **{k: list(v) for k, v in lists.items()}, **settings}
    given["comparisons"] = dict(comparisons) if isinstance(comparisons, Mapping) else list(comparisons)
    return effects_for(layout_of(result, Path(results)), cells, weight, given)


def recommend(
    result: Result | str | Path,
    user: object = None,
    *,
    watched: Sequence[object] | None = None,
    rated: Mapping[object, float] | None = None,
    num_films: int = 10,
    depth: int = 10,
    order: Literal["mean", "best", "thompson"] = "mean",
    results: str | Path = "results",
) -> ShownFilms:
    """Rank films for one user from the stored posterior of a watch matrix or of ratings, as `bayesmesh recommend` does.

    Args:
        result: a result, the name of an experiment, or its folder.
        user: id of a user in the data.
        watched: instead, titles or ids of the films that a new user has watched.
        rated: instead, title or id -> rating by a new user, for an experiment on ratings.
        num_films: number of films to list.
        depth: how many films count as "among the first".
        order: by mean watch probability or expected rating, by probability of being the best, or by one random draw.
        results: folder of results, for a name.

    Returns:
        The list: ``table``, a data frame with one row per film, ``about`` and ``warnings``.

    Raises:
        ConfigError: none or several of `user`, `watched` and `rated` are given, there is no such user, or the model has no embeddings.
        DataError: a title is unknown, and the message names the nearest; or a rating is not on the data's scale.
        StoreError: a result is damaged or altered.
    """
    from bayesmesh.analyses.recommendation.film_lists import Request
    from bayesmesh.notebook.films import films_for
    from bayesmesh.notebook.result import layout_of

    return films_for(layout_of(result, Path(results)), user, watched, rated, Request(num_films, depth, order))
