"""`bayesmesh recommend` of an experiment of ratings, and scores of users whom the chains have not seen, from stored draws."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

import bayesmesh as bm
from bayesmesh.analyses.options import RatingScoresOptions as Options
from bayesmesh.analyses.rating_scores.analysis import RatingScores
from bayesmesh.analyses.rating_scores.scores import score_ratings
from bayesmesh.cli import main
from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.experiment import experiment_class
from bayesmesh.data.base import Dataset
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.hashes import write_hashes
from bayesmesh.store.layout import CHAIN, DRAW
from bayesmesh.store.posterior.reader import Posterior
from bayesmesh.workflow.components import component_of
from bayesmesh.workflow.jobs import Job, make_job, write_spec
from bayesmesh.workflow.stages.inputs import bind
from recording import record_as

USERS, FILMS, WIDTH, NOISE, DRAWS = 400, 40, 2, 0.6, (2, 40)

CONFIG = {
    "title": "Stars",
    "data": {"source": "ratings", "num_users": USERS, "num_films": FILMS, "width": WIDTH, "noise": NOISE, "bias_scale": 0.5,
             "factor_scale": 0.7, "held_out_groups": "user", "held_out_fraction": 0.5},
    "model": {"name": "rating_factorization", "width": WIDTH},
    "kernel": {"name": "hmc"},
}  # fmt: skip


def held_out(spec: Job) -> dict[str, np.ndarray]:
    rows = Shards(spec.data_layout.shards).held_out()
    assert isinstance(rows, dict)
    return rows


@pytest.fixture
def stars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Job, Dataset, dict[str, np.ndarray]]:
    """An experiment `stars` whose draws are the true films, each turned by itself, and new users drawn from their prior."""
    monkeypatch.chdir(tmp_path)
    jax.config.update("jax_enable_x64", True)
    spec: Job = make_job("assemble", "stars", experiment_class().model_validate(CONFIG), "results")
    source_class, options = component_of(spec, "source")
    dataset = source_class(options).read(tmp_path)
    shard(dataset, DataSettings(held_out_fraction=0.5, held_out_groups="user"), spec.data_layout)
    generator = np.random.default_rng(3)
    turns = np.linalg.qr(generator.normal(size=(*DRAWS, WIDTH, WIDTH)))[0]
    draws = {n: np.broadcast_to(v, (*DRAWS, *np.shape(v))).astype("f4") for n, v in dataset.truth.items()}
    for name in ("user_embeddings", "film_embeddings"):
        draws[name] = (draws[name] @ turns).astype("f4")
    hidden = np.unique(held_out(spec)["user"])
    for name in ("user_embeddings", "user_biases"):
        shape = draws[name][:, :, hidden].shape
        draws[name][:, :, hidden] = generator.normal(size=shape)
    group = open_group(spec.layout.posterior, "w").create_group("posterior")
    for name, values in draws.items():
        write_array(group, name, values, (CHAIN, DRAW, *(f"{name}_{i}" for i in range(values.ndim - 2))))
    write_hashes(spec.layout.posterior, {})
    outputs = [spec.layout.posterior, spec.layout.posterior_hashes]
    record_as(Path("results"), "stars", "assemble", outputs, specification=spec.digest)
    owner = spec.data_layout.sharded.parent.relative_to("results").as_posix()
    record_as(Path("results"), owner, "shard", [spec.data_layout.shards, spec.data_layout.sharded])
    write_spec(spec)
    return spec, dataset, draws


Stars = tuple[Job, Dataset, dict[str, np.ndarray]]


def expected(draws: dict[str, np.ndarray], user: int) -> np.ndarray:
    """Expected ratings of a user of the data in every draw, (draw, film)."""
    z = {name: values.reshape(-1, *values.shape[2:]).astype(float) for name, values in draws.items()}
    product = np.einsum("dfw,dw->df", z["film_embeddings"], z["user_embeddings"][:, user])
    return product + z["film_biases"] + z["user_biases"][:, user, None] + z["mean"][:, None]


def test_a_new_user_gets_what_a_user_with_these_ratings_gets(stars: Stars) -> None:
    spec, dataset, draws = stars
    rows = {name: dataset.rows[name][:] for name in ("user", "film", "rating")}
    known = np.setdiff1d(np.arange(USERS), held_out(spec)["user"])
    user = known[np.argmax(np.bincount(rows["user"], minlength=USERS)[known])]
    own = rows["user"] == user
    lines = [f"{dataset.columns['title'][f]};{y}" for f, y in zip(rows["film"][own], rows["rating"][own], strict=True)]
    Path("mine.csv").write_text("\n".join(["film;rating", *lines]) + "\n", encoding="utf-8")
    assert main(["recommend", "stars", "--rated", "mine.csv", "--top", "99", "--output", "new.csv"]) == 0
    new = pd.read_csv("new.csv").set_index("film_id")["mean"]
    assert len(new) == FILMS - own.sum()
    films = new.index.to_numpy() - 1
    truth = expected(draws, user).mean(axis=0)[films]
    others = np.mean([expected(draws, each).mean(axis=0)[films] for each in known], axis=0)
    assert np.square(new - truth).mean() < 0.5 * np.square(others - truth).mean()
    rated = {int(f) + 1: y for f, y in zip(rows["film"][own], rows["rating"][own], strict=True)}
    again = bm.recommend("stars", rated=rated, num_films=99).table
    np.testing.assert_array_equal(again["film_id"], new.index)


def test_neither_jax_nor_tfp_is_imported(stars: Stars) -> None:
    Path("mine.csv").write_text("rating,film\n3,Film 001\n")
    code = (
        "import sys; from bayesmesh.cli import main; code = main(['recommend', 'stars', '--rated', 'mine.csv']);"
        "print(code, sorted({'jax', 'tensorflow_probability', 'pandas', 'xarray', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("0 []\n"), done.stdout


def test_users_whom_the_chains_have_not_seen_are_predicted_from_some_of_their_ratings(stars: Stars) -> None:
    """With the true films their posteriors are exact: intervals hold what they say, and errors are those of the noise."""
    spec, _, _ = stars
    bound = bind(spec, component_of(spec, "model"))
    files = {name: Path(name) for name in ("scores.csv", "coverage.csv")}
    score_ratings(bound, Posterior(spec.layout.posterior), Options(resamples=200), files)
    scores = pd.read_csv("scores.csv").set_index("prediction")
    counts = np.bincount(held_out(spec)["user"])
    assert scores["num_users"].iloc[0] == (counts > 1).sum()
    hidden = sum(max(1, round(0.2 * n)) for n in counts if n > 1)
    assert abs(scores["num_ratings"].iloc[0] - hidden) < 0.02 * hidden
    assert scores["num_ratings"].iloc[0] + scores["num_given"].iloc[0] == counts[counts > 1].sum()
    assert NOISE < scores.loc["posterior_average", "rmse"] < scores.loc["biases", "rmse"] < scores.loc["mean", "rmse"]
    assert scores.loc["biases", "rmse_less_average_low"] > 0
    assert scores.loc["single_draw", "rmse_less_average_low"] > 0
    covered = pd.read_csv("coverage.csv").set_index("probability")["covered"]
    assert 0.87 < covered[0.9] < 0.93
    section = RatingScores(Options()).section(files)
    assert section is not None
    assert "The chains have not seen these" in section.body
