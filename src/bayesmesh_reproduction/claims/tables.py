"""Second computations of what tables of benchmarks and experiments hold; the arguments are those of the checks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bayesmesh.errors import StoreError
from bayesmesh_reproduction.claims.cells import STATISTICS
from bayesmesh_reproduction.claims.recomputation import AGAIN, Row, recompute
from bayesmesh_reproduction.claims.results import Reading, Results


def gradient_again(results: Results, file: str, column: str, **where: Any) -> Reading:
    """Compute s(x) (1 - s(x)); 3e-7 allows a few units in the last place of float32 values up to 1/4."""

    def compute(row: Row) -> float:
        s = 1 / (1 + math.exp(-float(row["x"])))
        return s * (1 - s)

    return recompute(results, file, column, compute, 3e-7, where)


def total_again(results: Results, file: str, column: str, statistic: str, **where: Any) -> Reading:
    """Add the inputs of every row."""
    return recompute(
        results, file, column, lambda row: sum(map(float, row["inputs"].split())), 1e-6, where, STATISTICS[statistic]
    )


def sharded_over_plain_again(results: Results, file: str, column: str, over: dict[str, str], **where: Any) -> Reading:
    """Compute the log density of independent normals, in nats, from ``values`` with ``loc`` and ``scale``."""

    def compute(row: Row) -> float:
        values, loc, scale = (np.array(row[name].split(), np.float64) for name in ("values", "loc", "scale"))
        return float((-0.5 * ((values - loc) / scale) ** 2 - np.log(scale) - 0.5 * math.log(2 * math.pi)).sum())

    sharded = recompute(results, file, column, compute, 1e-6, where)
    return sharded / results.rows(file, **where).only(over["column"])


def equations_again(results: Results, file: str, column: str, contender: str) -> Reading:
    """Count the equations of the programs whose text is stored: lines that assign. The table must agree."""
    rows, programs = results.rows(file, contender=contender), file.replace(".csv", "-programs.json")
    texts = results.document(programs)
    counts = {n: text.count(" = ") for n, text in texts.get(contender, {}).items()} if isinstance(texts, dict) else {}
    if len(counts) < 2:
        raise StoreError(f"{programs}: fewer than two programs to compare", AGAIN)
    for row in rows.records():
        n, said = row.get("n", ""), row.get(column, "")
        if n in counts and said and float(said) != counts[n]:
            raise StoreError(f"{file}: says {said} {column} at n {n}, and the program has {counts[n]}", AGAIN)
    return Reading(max(counts.values()) / min(counts.values()), file)


def moment_of_states(results: Results, file: str, column: str, scale: str, contender: str) -> Reading:
    """Compute the mean or the variance of the last states of a contender of the benchmark `metropolis`."""
    array = f"posterior/{scale}_{contender.replace(', ', '_')}"
    statistic = np.mean if column == "mean" else np.var
    return results.over(file.replace("moments.csv", "states.zarr"), array, statistic)


def moment_of_chains(results: Results, file: str, column: str, coordinate: int) -> Reading:
    """Compute the mean or the standard deviation of a coordinate of the benchmark `tutorial`."""
    statistic = np.mean if column == "mean" else lambda values: np.std(values, ddof=1)
    return results.over(file.replace(".csv", ".zarr"), "posterior/state", statistic, coordinate)


def mean_of_draws(results: Results, file: str, variable: str, index: str = "", **_: str) -> Reading:
    """Compute the mean of a variable, or of its entry at an index such as ``0,0``, from the draws of an experiment."""
    posterior = f"{file.partition('/')[0]}/posterior.zarr"
    return results.over(posterior, f"posterior/{variable}", np.mean, *map(int, filter(None, index.split(","))))
