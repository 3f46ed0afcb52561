"""`bayesmesh recommend --user` and `--watched`, from a stored posterior to the list, without JAX."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayesmesh as bm
from bayesmesh.cli import main
from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.experiment import experiment_class
from bayesmesh.data.sharding import shard
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.hashes import write_hashes
from bayesmesh.store.layout import CHAIN, DRAW
from bayesmesh.workflow.components import component_of
from bayesmesh.workflow.jobs import Job, make_job, write_spec
from recording import record_as

NUM_USERS, NUM_FILMS, WIDTH, DRAWS = 30, 25, 2, (2, 60)

CONFIG = {
    "title": "Films",
    "data": {"source": "films", "num_users": NUM_USERS, "num_films": NUM_FILMS, "width": WIDTH, "offset": -1.0, "held_out_fraction": 0.25},
    "model": {"name": "matrix_factorization", "width": WIDTH},
    "kernel": {"name": "hmc"},
}  # fmt: skip


@pytest.fixture
def latents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """An experiment `club` whose posterior lies around the truth; the draws."""
    monkeypatch.chdir(tmp_path)
    spec: Job = make_job("assemble", "club", experiment_class().model_validate(CONFIG), "results")
    source_class, options = component_of(spec, "source")
    dataset = source_class(options).read(tmp_path)
    shard(dataset, DataSettings(held_out_fraction=0.25), spec.data_layout)
    generator = np.random.default_rng(3)
    draws = {n: (v + 0.2 * generator.normal(size=(*DRAWS, *v.shape))).astype("f4") for n, v in dataset.truth.items()}
    group = open_group(spec.layout.posterior, "w").create_group("posterior")
    for name, values in draws.items():
        write_array(group, name, values, (CHAIN, DRAW, *(f"{name}_{i}" for i in range(values.ndim - 2))))
    write_hashes(spec.layout.posterior, {})
    outputs = [spec.layout.posterior, spec.layout.posterior_hashes]
    record_as(Path("results"), "club", "assemble", outputs, specification=spec.digest)
    owner = spec.data_layout.sharded.parent.relative_to("results").as_posix()
    record_as(Path("results"), owner, "shard", [spec.data_layout.shards, spec.data_layout.sharded])
    write_spec(spec)
    return draws


def test_the_list_of_a_user_is_that_of_the_users_own_draws(
    latents: dict[str, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recommend", "club", "--user", "7", "--top", "4", "--depth", "3", "--output", "list.csv"]) == 0
    shown = capsys.readouterr()
    found = pd.read_csv("list.csv")
    flat = {name: values.reshape(-1, *values.shape[2:]).astype(float) for name, values in latents.items()}
    logits = np.einsum("dfw,dw->df", flat["film_embeddings"], flat["user_embeddings"][:, 6])
    logits += flat["film_biases"] + flat["user_biases"][:, 6, None]
    mean = (1 / (1 + np.exp(-logits))).mean(axis=0)
    for row in found.itertuples():
        assert row.film_id == int(row.title.split()[1])
        np.testing.assert_allclose(row.mean, mean[row.film_id - 1], rtol=1e-4)
        assert row.low < row.mean < row.high
        assert row.title in shown.out
    assert found["rank"].tolist() == [1, 2, 3, 4]
    assert found["mean"].is_monotonic_decreasing
    assert "User 7: " in shown.out
    assert "more held out; 120 of 120 draws" in shown.out
    assert "no verdict on the posterior yet" in shown.err
    table = bm.recommend("club", 7, num_films=4, depth=3).table
    np.testing.assert_array_equal(table["film_id"], found["film_id"])
    np.testing.assert_array_equal(table["p_top"], found["p_top"])


def test_a_new_user_gets_what_a_user_with_these_films_gets(latents: dict[str, np.ndarray]) -> None:
    """Given what a user watched, a new one resembles that user more than another one."""
    lists = {user: bm.recommend("club", user, num_films=NUM_FILMS).table for user in (3, 12)}
    watched = {user: sorted(set(range(1, NUM_FILMS + 1)) - set(table["film_id"])) for user, table in lists.items()}
    Path("watched.txt").write_text("\n".join(f"Film {film:03d}" for film in watched[3]))
    arguments = ["recommend", "--experiment", "club", "--watched", "watched.txt", "--top", "99", "--output", "new.json"]
    assert main(arguments) == 0
    content = json.loads(Path("new.json").read_text())
    assert content["about"].startswith(f"New user: {len(watched[3])} films watched; 120 of 120 draws")
    new = pd.DataFrame(content["films"]).set_index("film_id")["mean"]
    assert not set(watched[3]) & set(new.index)
    error = {
        user: np.sqrt(np.mean((new - table.set_index("film_id")["mean"]).dropna() ** 2))
        for user, table in lists.items()
    }
    assert error[3] < error[12]
    again = bm.recommend("club", watched=[f"film {film:03d}" for film in watched[3]], num_films=99)
    np.testing.assert_array_equal(again.table["film_id"], new.index)
    assert "Film " in again._repr_html_()
    assert repr(again).startswith("club: no verdict")


def test_neither_jax_nor_tfp_is_imported(latents: dict[str, np.ndarray]) -> None:
    Path("watched.txt").write_text("3\n5\n")
    code = (
        "import sys; from bayesmesh.cli import main; code = main(['recommend', 'club', '--watched', 'watched.txt']);"
        "print(code, sorted({'jax', 'tensorflow_probability', 'pandas', 'xarray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("0 []\n"), done.stdout
