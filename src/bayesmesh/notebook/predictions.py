"""Predict new rows and compute effects in processes of their own, so that the JAX of the notebook does not matter."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from bayesmesh.errors import ConfigError, UserError, last_error
from bayesmesh.notebook.data import write_given
from bayesmesh.notebook.stages import ERRORS, job_environment, pass_on_warnings
from bayesmesh.store.layout import ExperimentLayout, NotebookLayout

NUMBERS = ("mean", "sd", "low", "high", "mcse_mean")
"""Columns of numbers of a table of effects."""


def predictions_for(
    layout: ExperimentLayout, table: pd.DataFrame, interval: float, *, new_levels: bool
) -> pd.DataFrame:
    """Return the predictions of the verb `predict` for the rows of a table; see `bayesmesh.predict`."""
    if not isinstance(table, pd.DataFrame):
        raise ConfigError(
            f"table: expected a pandas data frame, found {type(table).__name__}",
            "for a file, pass pandas.read_csv(file)",
        )
    if not (isinstance(interval, int | float) and 0 < interval < 1):
        raise ConfigError(f"interval={interval!r}: expected a probability between 0 and 1", "write 0.9, for example")
    with tempfile.TemporaryDirectory() as folder:
        file, output = write_given(table.reset_index(drop=True), Path(folder)), Path(folder, "predicted.csv")
        words = ["predict", layout.experiment, "--results", str(layout.results), "--table", file]
        words += ["--output", str(output), "--interval", str(interval), *(["--new-levels"] if new_levels else [])]
        try:
            _run(layout, words)
        except UserError as error:
            remedy = error.remedy.replace("--new-levels", "new_levels=True")
            raise type(error)(error.message.replace(file, "the table"), remedy) from error
        return read_predictions(output).drop(columns="row").set_index(table.index)


def read_predictions(path: Path) -> pd.DataFrame:
    """Return the table that the verb writes; classes whose names are not all whole numbers keep their text, such as `01` or `None`."""
    names = pd.read_csv(path, nrows=0).columns
    frame = pd.read_csv(
        path, dtype={names[1]: str}, keep_default_na=False, na_values={name: [""] for name in names[2:]}
    )
    is_class = names[2].startswith("probability[")
    if not is_class or frame[names[1]].str.fullmatch(r"0|[1-9]\d*").all():
        frame[names[1]] = pd.to_numeric(frame[names[1]])
    return frame


def effects_for(
    layout: ExperimentLayout, cells: pd.DataFrame | None, weight: str | None, settings: Mapping[str, object]
) -> pd.DataFrame:
    """Return the table of the verb `effects`; see `bayesmesh.effects`."""
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder, "effects.json"), Path(folder, "effects.csv")
        file.write_text(json.dumps(settings, default=_plain), encoding="utf-8")
        words = [
            "effects",
            layout.experiment,
            "--results",
            str(layout.results),
            "--settings",
            str(file),
            "--output",
            str(output),
        ]
        if cells is not None:
            words += ["--cells", write_given(cells.reset_index(drop=True), Path(folder))]
        _run(layout, words + ([] if weight is None else ["--weight", weight]))
        return pd.read_csv(output, keep_default_na=False, na_values={name: [""] for name in NUMBERS})


def _plain(value: object) -> object:
    """Return a value of NumPy or pandas as one that JSON has."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise ConfigError(f"{value!r}: not a value of the key 'effects'", "use numbers, texts, lists and mappings")


def _run(layout: ExperimentLayout, words: Sequence[str]) -> None:
    """Run a verb in a process of its own, and raise its error here."""
    done = subprocess.run(
        [sys.executable, "-m", "bayesmesh.cli", *words],
        env=job_environment([str(NotebookLayout(layout.results).code.absolute())]), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        problem = f"bayesmesh {words[0]} ended with exit code {done.returncode}: {done.stderr[-2000:]}"
        found = last_error(done.stderr) or UserError(problem)
        raise ERRORS.get(done.returncode, UserError)(found.message, found.remedy)
    pass_on_warnings(done.stderr)
