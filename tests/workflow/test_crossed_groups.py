"""One million ratings as a table with effects of users and films: the verdict passes, and restricted likelihood agrees."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import yaml
from scipy.optimize import minimize

EXPERIMENT = {
    "title": "Ratings of users and films",
    "data": {"source": "table", "files": "ratings.csv", "types": {"rating": "number"}},
    "model": {"name": "glm", "formula": "rating ~ 1 + (1 | user) + (1 | film)", "centred": True},
    "kernel": {"name": "gibbs"},
    "sampling": {"warmup": 100, "draws": 400},
}


def restricted_likelihood(user: np.ndarray, film: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return estimates of restricted maximum likelihood (Bates et al. 2015), with users eliminated by a Schur complement."""
    num_rows, num_users, num_films = len(y), user.max() + 1, film.max() + 1
    cells = scipy.sparse.csr_matrix((np.ones(num_rows), (user, film)), (num_users, num_films))
    of_users, of_films = np.bincount(user), np.bincount(film)
    sums_of_users, sums_of_films = np.bincount(user, y), np.bincount(film, y)

    def profiled(log_ratios: np.ndarray) -> tuple[float, float, float]:
        """Return minus twice the log likelihood, the intercept and sigma, given the logs of standard deviations over sigma."""
        a, b = np.exp(-2 * log_ratios)
        share = 1 / (of_users + a)
        films = -(cells.T @ scipy.sparse.diags(share) @ cells).toarray()
        films[np.diag_indices(num_films)] += of_films + b
        factor = scipy.linalg.cholesky(films, lower=True, overwrite_a=True)
        ones = scipy.linalg.solve_triangular(factor, of_films - cells.T @ (share * of_users), lower=True)
        outcome = scipy.linalg.solve_triangular(factor, sums_of_films - cells.T @ (share * sums_of_users), lower=True)
        information = num_rows - share @ of_users**2 - ones @ ones
        intercept = (y.sum() - share @ (of_users * sums_of_users) - ones @ outcome) / information
        squares = y @ y - share @ sums_of_users**2 - outcome @ outcome - intercept**2 * information
        variance = squares / (num_rows - 1)
        log_det = -np.log(share).sum() - num_users * np.log(a) + 2 * np.log(np.diag(factor)).sum()
        log_det += np.log(information) - num_films * np.log(b)
        return (num_rows - 1) * np.log(variance) + log_det, float(intercept), float(np.sqrt(variance))

    begin = np.log([[0.4, 0.7], [0.5, 0.7], [0.4, 0.8]])
    options = {"xatol": 1e-4, "fatol": 1e-2, "initial_simplex": begin}
    at = minimize(lambda x: profiled(x)[0], begin[0], method="Nelder-Mead", options=options).x
    _, intercept, sigma = profiled(at)
    sd_user, sd_film = sigma * np.exp(at)
    return {"intercept": intercept, "sigma": sigma, "sd_user": float(sd_user), "sd_film": float(sd_film)}


@pytest.mark.nightly
def test_ratings_of_a_million_agree_with_restricted_likelihood(fresh: Any, tmp_path: Path, mirror: Path) -> None:
    workspace = fresh(tmp_path / "copy")
    lines = (mirror / "ml-1m" / "ratings.dat").read_text(encoding="latin-1").splitlines()
    rows = [line.split("::")[:3] for line in lines]
    with (workspace.root / "ratings.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["user", "film", "rating"], *([f"u{u}", f"f{f}", r] for u, f, r in rows)])
    workspace.experiment("trial").write_text(yaml.safe_dump(EXPERIMENT))
    done = workspace.snakemake("--cores", "2", "trial")
    assert done.returncode == 0, done.stderr[-4000:]
    diagnostics = workspace.results / "trial" / "diagnostics"
    assert json.loads((diagnostics / "verdict.json").read_text())["verdict"] == "pass"
    with (diagnostics / "summary.csv").open() as file:
        found = {row["variable"]: row for row in csv.DictReader(file)}
    user, film = (np.unique([row[i] for row in rows], return_inverse=True)[1] for i in (0, 1))
    expected = restricted_likelihood(user, film, np.array([float(row[2]) for row in rows]))
    for name, value in expected.items():
        mean, sd = float(found[name]["mean"]), float(found[name]["sd"])
        assert abs(mean - value) < 0.1 * sd, f"{name}: {mean} against {value}"
