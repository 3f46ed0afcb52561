"""What data and model do not offer is refused when programs are compiled, before anything is sampled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bayesmesh.analyses.base import BoundModel
from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.experiment import experiment_class
from bayesmesh.config.registry import load_component, options_class
from bayesmesh.data.base import Dataset
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards
from bayesmesh.errors import ConfigError
from bayesmesh.store.layout import DataLayout
from bayesmesh.workflow.components import component_of, make_analysis
from bayesmesh.workflow.flow import analysis_of
from bayesmesh.workflow.jobs import later_stages, make_job
from bayesmesh.workflow.stages.checks import check_later, check_reading, check_values

OPTIONS = {"films": {"num_users": 6, "num_films": 5, "width": 1}, "gaussian": {"num_rows": 9}}


@pytest.fixture(autouse=True, scope="module")
def _double_precision() -> None:
    jax.config.update("jax_enable_x64", True)


Check = Callable[..., str]


@pytest.fixture
def refusal(tmp_path: Path) -> Check:
    """Return a function of (source, model, **later settings) that gives the message of the refusal, or nothing."""

    def check(source: str, model: str, **later: Any) -> str:
        options = options_class("source", source)(**OPTIONS.get(source, {}))
        layout = DataLayout(tmp_path, source, "all")
        shard(load_component("source", source)(options).read(tmp_path), DataSettings(), layout)
        shards = Shards(layout.shards)
        data_spec = shards.spec()
        config = {
            "title": "A",
            "data": {"source": source},
            "model": {"name": model},
            "kernel": {"name": "hmc"},
            **later,
        }
        experiment = experiment_class().model_validate(config)
        spec, *asked = [
            make_job(stage, "some", experiment, "results") for stage in ("compile", *later_stages(experiment))
        ]
        try:
            model_class, options = component_of(spec, "model")
            latents = check_reading(spec, (model_class, options), data_spec)
            analyses = [make_analysis(each) for each in asked if analysis_of(each.stage)]
            others = [each for each in asked if not analysis_of(each.stage)]
            bound = BoundModel(model_class(options, data_spec), data_spec, shards)
            check_later(spec, others, analyses, bound, latents)
        except ConfigError as error:
            return str(error)
        return ""

    return check


def test_what_is_offered_passes(refusal: Check) -> None:
    assert refusal("digits", "softmax_regression", averaging={}) == ""
    assert refusal("films", "matrix_factorization", recommendation={"users": [5]}) == ""
    assert refusal("gaussian", "gaussian") == ""
    assert refusal("gaussian", "gaussian", sampling={"stop": {"max_mcse": {"mean": 0.1, "log_density": 1.0}}}) == ""


@pytest.mark.parametrize(
    ("source", "model", "later", "said"),
    [
        ("films", "matrix_factorization", {"averaging": {}}, "key 'averaging': model MatrixFactorization has latents"),
        ("gaussian", "gaussian", {"averaging": {}}, "key 'averaging': the dataset has no test rows"),
        ("digits", "softmax_regression", {"recommendation": {}}, "key 'recommendation': the dataset is of kind 'rows'"),
        ("films", "matrix_factorization", {"recommendation": {"users": [2, 6, -1]}},
         "key 'recommendation.users': no user 6, -1; there are users 0 to 5"),
        ("digits", "softmax_regression", {"sampling": {"stop": {"max_r_hat": 1.1, "summaries": ["weights"]}}},
         "key 'sampling.stop.summaries': the model has no summary 'weights'"),
    ],
)  # fmt: skip
def test_what_is_not_offered_is_refused_by_file_and_key(
    refusal: Check, source: str, model: str, later: dict[str, Any], said: str
) -> None:
    message = refusal(source, model, **later)
    assert message.startswith(f"config/experiments/some.yaml: {said}")
    assert "remedy: " in message


OF_GROUPS = """
import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.settings import Settings
from bayesmesh.models.base import Model

tfd = tfp.distributions


class Options(Settings):
    pass


class Groups(Model):
    def prior(self, data_spec):
        return tfd.JointDistributionNamed({"effects": tfd.Sample(tfd.Normal(jnp.zeros((), data_spec.dtype), 1.0), 3)})

    def predict(self, latents, inputs):
        return tfd.Normal(latents["effects"][inputs["group"].astype("int32")], 1.0)

    def log_likelihood(self, latents, rows):
        return self.predict(latents, rows).log_prob(rows["y"])

    def summaries(self, latents, rows):
        return {"first": latents["effects"][0]}
"""


@pytest.mark.parametrize(("group", "said"), [(2, ""), (3, "test row 2 (group 3, y 0): an index is beyond the end")])
def test_an_index_of_a_test_row_is_within_its_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int, said: str
) -> None:
    (tmp_path / "own_groups.py").write_text(OF_GROUPS)
    monkeypatch.chdir(tmp_path)
    rows = {"y": np.zeros(4, np.float32), "group": np.array([0, 1, 2, 0], np.int32)}
    test_rows = {"y": np.zeros(2, np.float32), "group": np.array([0, group], np.int32)}
    layout = DataLayout(tmp_path, "groups", "all")
    shard(Dataset(rows, test_rows), DataSettings(), layout)
    shards = Shards(layout.shards)
    config = {
        "title": "A",
        "data": {"source": "gaussian"},
        "model": {"name": "own_groups:Groups"},
        "kernel": {"name": "hmc"},
    }
    spec = make_job("compile", "some", experiment_class().model_validate(config), "results")
    try:
        check_values(spec, component_of(spec, "model"), shards.spec(), shards, (0, 4))
        message = ""
    except ConfigError as error:
        message = str(error)
    assert said in message
    assert bool(message) == bool(said)
