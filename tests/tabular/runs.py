"""Write a table to files, read it with the source `table`, sample with default settings, and compare with the reference."""

from __future__ import annotations

import csv
import functools
import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from arviz_stats.base import array_stats

import programs
from bayesmesh.config.blocks import DataSettings, SamplingSettings
from bayesmesh.config.registry import load_component, options_class
from bayesmesh.data.sharding import shard
from bayesmesh.data.sources.table import Source
from bayesmesh.data.views import WholeShards, prepared
from bayesmesh.store.layout import DataLayout
from cases import Case
from posteriors.judging import run
from tabular.base import Table
from tabular.simulated import TABLES, columns_of


class Numbers(NamedTuple):
    """Mean, standard deviation, their standard errors, and quantiles with theirs, which closed forms lack."""

    mean: float
    sd: float
    mean_error: float
    sd_error: float
    q05: float = math.nan
    q95: float = math.nan
    q05_error: float = math.nan
    q95_error: float = math.nan


REFERENCE = Path(__file__).with_name("reference.csv")

MOST_Z = 5.5
"""Of means and of standard deviations, about 250 numbers: one in a hundred thousand is beyond it by chance."""

LEAST_ESS = 400
"""Fewer effective draws prove nothing."""


class Compared(NamedTuple):
    """A run against its reference.

    Attributes:
        mean_z, sd_z, tail_z: largest errors in standard errors of both, and where; of 5% and 95% quantiles, if they are known.
        r_hat: largest.
        ess: smallest effective sample size of a mean.
    """

    mean_z: tuple[float, str]
    sd_z: tuple[float, str]
    tail_z: tuple[float, str]
    r_hat: float
    ess: float

    @property
    def is_right(self) -> bool:
        """Whether the run agrees with the reference, and is long enough to say so."""
        return (
            max(self.mean_z[0], self.sd_z[0], self.tail_z[0]) < MOST_Z and self.ess >= LEAST_ESS and self.r_hat < 1.02
        )


def write_files(table: Table, columns: Any, folder: Path) -> list[str]:
    """Write the columns in the format, and the number of files, that the table has; return patterns that name them."""
    frame = pd.DataFrame(dict(columns))
    if table.key is not None:
        parts = {folder / f"{table.key}={k}" / "part": f.drop(columns=table.key) for k, f in frame.groupby(table.key)}
    else:
        edges = np.linspace(0, len(frame), table.parts + 1).astype(int)
        parts = {folder / f"part-{i}": frame.iloc[edges[i] : edges[i + 1]] for i in range(table.parts)}
    for path, part in parts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        own = part.reset_index(drop=True)
        file = path.with_suffix(f".{table.form}")
        if table.form in ("csv", "tsv"):
            own.to_csv(file, sep="," if table.form == "csv" else "\t", index=False)
        elif table.form == "jsonl":
            file.write_text("".join(f"{json.dumps(row)}\n" for row in own.to_dict("records")))
        else:
            (own.to_parquet if table.form == "parquet" else own.to_feather)(file)
    return [str(folder)] if table.key is not None else [str(folder / f"*.{table.form}")]


def read_case(name: str, folder: Path, dtype: str = "float32") -> Case:
    """Return the model bound to the table after files, fetch, shard and preparation."""
    return case_of(name, TABLES[name], columns_of(name), folder, dtype)


def case_of(name: str, table: Table, columns: Any, folder: Path, dtype: str = "float32") -> Case:
    """Return the model bound to columns that go through files."""
    patterns = write_files(table, columns, folder / "files")
    options = {**table.source, "files": patterns}
    layout = DataLayout(folder, "table", "all")
    source = Source(options_class("source", "table")(**options))
    layout.records.mkdir(parents=True)
    source.fetch(layout.records)
    shard(source.read(layout.records), DataSettings(), layout)
    model_class: Any = load_component("model", table.model)
    own = options_class("model", table.model)(**table.options)
    prepare = functools.partial(model_class.prepare, own)
    is_whole = model_class.reads_whole(own)
    shards = WholeShards(layout.shards, prepare) if is_whole else prepared(layout.shards, prepare)
    return Case(table.model, "table", model_class, own, shards.spec(dtype), shards.read_rows(0, shards.num_rows))


def sample_table(name: str, dtype: str = "float32", seed: int = 3) -> tuple[dict[str, np.ndarray], programs.Run]:
    """Read a table from files and sample with default settings; return draws of each quantity, and the run."""
    with tempfile.TemporaryDirectory() as folder:
        case = read_case(name, Path(folder), dtype)
    sampling = SamplingSettings()
    built = programs.build(
        case, "nuts", num_chains=sampling.chains, num_warmup=sampling.warmup, most_draws=500,
        row_tile=case.spec.num_rows, initial=sampling.initial.model_dump(),
    )  # fmt: skip
    done = run(built, sampling.draws, seed)
    return named_draws(case, done.draws), done


def compare(draws: Mapping[str, np.ndarray], known: Mapping[str, Numbers]) -> Compared:
    """Compare every quantity of the reference.

    Args:
        draws: quantity -> (chain, draw).
        known: quantity -> mean, standard deviation, and their standard errors.
    """
    means, sds, tails, r_hats, sizes = [], [], [(0.0, "")], [], []
    for quantity, (mean, sd, mean_error, sd_error, *quantiles) in known.items():
        x = np.ascontiguousarray(draws[quantity], np.float64)
        own = array_stats.mcse(x, method="mean"), array_stats.mcse(x, method="sd")
        means.append((float(abs(x.mean() - mean) / np.hypot(own[0], mean_error)), quantity))
        sds.append((float(abs(x.std() - sd) / np.hypot(own[1], sd_error)), quantity))
        for p, value, error in zip((0.05, 0.95), quantiles[:2], quantiles[2:], strict=True):
            if not math.isnan(value):
                apart = np.hypot(array_stats.mcse(x, method="quantile", prob=p), error)
                tails.append((float(abs(np.quantile(x, p) - value) / apart), quantity))
        r_hats.append(float(array_stats.rhat(x)))
        sizes.append(float(array_stats.ess(x, method="mean")))
    return Compared(max(means), max(sds), max(tails), max(r_hats), min(sizes))


def named_draws(case: Case, draws: Any) -> dict[str, np.ndarray]:
    """Return quantity -> (chain, draw), of all summaries, with names of levels."""
    model, few = case.model, {k: jnp.asarray(v[:2]) for k, v in case.rows.items()}
    local = {k: np.take(draws[k], np.zeros(2, int), axis=axis + 2) for k, axis in model.local_latents.items()}
    found = jax.jit(jax.vmap(jax.vmap(lambda z: model.summaries(z, few))))({**draws, **local})
    axes, named = model.axes(), {}
    for name, values in found.items():
        values = np.swapaxes(np.asarray(values), 0, 1)
        for index in np.ndindex(values.shape[2:]):
            of = [axis.labels[i] if axis and axis.labels else str(i) for axis, i in zip(axes.get(name, (None,) * len(index)), index, strict=True)]  # fmt: skip
            named[f"{name}[{','.join(of)}]" if of else name] = values[(..., *index)]
    return named


@functools.cache
def reference() -> dict[str, dict[str, Numbers]]:
    """Return table -> quantity -> its numbers."""
    found: dict[str, dict[str, Numbers]] = {name: {} for name in TABLES}
    with REFERENCE.open() as file:
        for row in csv.DictReader(file):
            values = {key: float(row[key]) for key in Numbers._fields if row[key]}
            found[row["table"]][row["quantity"]] = Numbers(**values)
    return found
