"""Predict new rows in a process of its own, so that the JAX of the notebook does not matter, as for the stages."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pandas as pd

from bayesmesh.errors import UserError, last_error
from bayesmesh.notebook.data import write_given
from bayesmesh.notebook.stages import ERRORS, job_environment
from bayesmesh.store.layout import ExperimentLayout, NotebookLayout


def predictions_for(
    layout: ExperimentLayout, table: pd.DataFrame, interval: float, *, new_levels: bool
) -> pd.DataFrame:
    """Return the predictions of the verb `predict` for the rows of a table; see `bayesmesh.predict`."""
    with tempfile.TemporaryDirectory() as folder:
        file, output = write_given(table, Path(folder)), Path(folder, "predicted.csv")
        words = [
            "predict",
            layout.experiment,
            "--results",
            str(layout.results),
            "--table",
            file,
            "--output",
            str(output),
        ]
        words += ["--interval", str(interval), *(["--new-levels"] if new_levels else [])]
        done = subprocess.run(
            [sys.executable, "-m", "bayesmesh.cli", *words],
            env=job_environment([str(NotebookLayout(layout.results).code.absolute())]), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            found = last_error(done.stderr) or UserError(
                f"bayesmesh predict ended with exit code {done.returncode}: {done.stderr[-2000:]}"
            )
            remedy = found.remedy.replace("--new-levels", "new_levels=True")
            raise ERRORS.get(done.returncode, UserError)(found.message.replace(file, "the table"), remedy)
        for line in done.stderr.splitlines():
            if "may be wrong" in line:
                warnings.warn(line.partition(" ")[2], stacklevel=3)
        return pd.read_csv(output).drop(columns="row").set_index(table.index)
