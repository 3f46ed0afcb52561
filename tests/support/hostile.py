"""Mistakes of a user, as data: models that do not work and configurations that no machine can run, each with its refusal.

`tests/unit/workflow/stages/test_hostile.py` checks them by shapes in one process; a longer run can write each case with `write`
and take it through the command line.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

HEAD = '''\
"""A model of a user."""

import time

import jax
import jax.numpy as jnp
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.settings import Argument, Settings
from bayesmesh.models.base import Model

tfd = tfp.distributions
KEPT = []


class Options(Settings):
    scale: Argument[float] = 1.0


class Mine(Model):
    pretty_name = "Mine"
    offers = ()
'''

METHODS = {
    "prior": """
def prior(self, data_spec):
    zero = jnp.zeros((), data_spec.dtype)
    normal = tfd.Normal(zero, zero + self.options.scale)
    return tfd.JointDistributionNamed({"mean": tfd.Sample(normal, data_spec.fields["x"].shape)})
""",
    "log_likelihood": """
def log_likelihood(self, latents, rows):
    return self.predict(latents, rows).log_prob(rows["x"])
""",
    "predict": """
def predict(self, latents, inputs):
    mean = jnp.broadcast_to(latents["mean"], inputs["x"].shape)
    return tfd.Independent(tfd.Normal(mean, jnp.ones((), mean.dtype)), 1)
""",
    "outcome": """
def outcome(self, rows):
    return rows["x"]
""",
    "summaries": """
def summaries(self, latents, rows):
    return {"mean": latents["mean"]}
""",
}
"""A model that works, method by method; its data are those of the source `gaussian`, field ``x`` (row, 2)."""

EXPERIMENT: dict[str, Any] = {
    "title": "Mine",
    "data": {"source": "gaussian", "num_rows": 20},
    "model": {"name": "mine:Mine"},
    "kernel": {"name": "hmc"},
    "sampling": {"chains": 2, "warmup": 5, "draws": 5},
    "compute": {"platform": "cpu", "mesh": {"chain": 1, "data": 1}},
}


@dataclasses.dataclass(frozen=True)
class Hostile:
    """One mistake.

    Attributes:
        name: of the case.
        said: parts of the refusal, among them what the user wrote and the remedy.
        methods: name -> text of a method that differs; None leaves it out.
        head: text before the methods.
        attributes: lines of the class besides the methods.
        experiment: top-level keys that differ.
    """

    name: str
    said: tuple[str, ...]
    methods: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    head: str = HEAD
    attributes: str = ""
    experiment: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def text(self) -> str:
        """Source text of the model."""
        methods = [text for text in {**METHODS, **self.methods}.values() if text is not None]
        return self.head + textwrap.indent("\n".join([self.attributes, *methods]), "    ")

    @property
    def settings(self) -> dict[str, Any]:
        """The experiment."""
        return {**EXPERIMENT, **self.experiment}

    def write(self, folder: Path, module: str = "mine") -> Path:
        """Write a project with one experiment, `mine`, and the module of its model; return the file of the module."""
        (folder / "config" / "experiments").mkdir(parents=True, exist_ok=True)
        (folder / "config" / "config.yaml").write_text("experiments: [mine]\n")
        text = yaml.safe_dump(self.settings).replace("mine:", f"{module}:")
        (folder / "config" / "experiments" / "mine.yaml").write_text(text)
        path = folder / f"{module}.py"
        path.write_text(self.text)
        return path


def _prior(body: str) -> dict[str, str]:
    return {"prior": "def prior(self, data_spec):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ")}


def _likelihood(body: str) -> dict[str, str]:
    text = "def log_likelihood(self, latents, rows):\n    right = self.predict(latents, rows).log_prob(rows['x'])\n"
    return {"log_likelihood": text + textwrap.indent(textwrap.dedent(body).strip(), "    ")}


def _summaries(body: str) -> dict[str, str]:
    return {
        "summaries": "def summaries(self, latents, rows):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ")
    }


def _with(**keys: Any) -> dict[str, Any]:
    """Return the keys of an experiment's blocks that differ from `EXPERIMENT`."""
    return {block: {**EXPERIMENT.get(block, {}), **values} for block, values in keys.items()}


DOUBLE = {"compute": {**EXPERIMENT["compute"], "dtype": "float64"}}
OF_PRIOR, OF_LIKELIHOOD, OF_SUMMARIES = "Mine.prior: ", "Mine.log_likelihood: ", "Mine.summaries: "

MODELS = (
    Hostile("float32 prior", (OF_PRIOR, "latent 'mean' has dtype float32", "jnp.zeros((), data_spec.dtype)"),
            _prior("return tfd.JointDistributionNamed({'mean': tfd.Sample(tfd.Normal(0.0, 1.0), (2,))})")),
    Hostile("float32 literal and float64 data", (OF_LIKELIHOOD, "returns float32 in an experiment of float64", "no jnp.float32("),
            _likelihood("return jnp.float32(2) * jnp.sum(rows['x'].astype('float32') - 1, -1)"), experiment=DOUBLE),
    Hostile("dtypes that do not go together", (OF_LIKELIHOOD, "float32", "float64", "remedy: give numbers the dtype"),
            _likelihood("return jax.lax.add(right, jnp.zeros(right.shape, 'float32'))"), experiment=DOUBLE),
    Hostile("misspelt latent", ("mine.py, line 37: Mine.predict: asks for 'meen'", "latents mean", "did you mean 'mean'?"),
            {"predict": METHODS["predict"].replace("mean\"", "meen\"")}),
    Hostile("misspelt field", (OF_LIKELIHOOD, "asks for 'xs'", "fields x", "did you mean 'x'?", "data.source"),
            _likelihood("return right + rows['xs'].sum(-1)")),
    Hostile("misspelt constant", (OF_PRIOR, "asks for 'noise_scal'", "did you mean 'noise_scale'?"),
            _prior("return tfd.Normal(0.0, data_spec.constants['noise_scal'])")),
    Hostile("a dict of distributions", (OF_PRIOR, "returns dict instead of a joint distribution", "tfd.JointDistributionNamed"),
            _prior("return {'mean': tfd.Normal(jnp.zeros((2,), data_spec.dtype), 1.0)}")),
    Hostile("one distribution", (OF_PRIOR, "returns Normal, whose draws are not a dict of named latents", "JointDistributionNamed"),
            _prior("return tfd.Normal(jnp.zeros((), data_spec.dtype), 1.0)")),
    Hostile("a sequential prior", (OF_PRIOR, "JointDistributionSequential", "not a dict of named latents"),
            _prior("return tfd.JointDistributionSequential([tfd.Normal(jnp.zeros((), data_spec.dtype), 1.0)])")),
    Hostile("no latents", (OF_PRIOR, "remedy: "), _prior("return tfd.JointDistributionNamed({})")),
    Hostile("an argument that names no latent", (OF_PRIOR, "asks for 'x', and has no such latent", "names of other latents"),
            _prior("return tfd.JointDistributionNamed({'mean': lambda x: tfd.Normal(x, 1.0)})")),
    Hostile("latents in a circle", (OF_PRIOR, "depend on each other in a circle", "names of other latents"),
            _prior("return tfd.JointDistributionNamed({'mean': lambda width: tfd.Normal(width, 1.0), 'width': lambda mean: tfd.Normal(mean, 1.0)})")),
    Hostile("a function without return", (OF_PRIOR, "a function in the joint distribution returns None", "return a distribution"),
            _prior("return tfd.JointDistributionNamed({'mean': lambda: None})")),
    Hostile("a loop of unknown length", (OF_LIKELIHOOD, "a loop whose number of steps depends on values has no gradient", "jax.lax.scan"),
            _likelihood("return right + jax.lax.while_loop(lambda at: at > 1, lambda at: at / 2, latents['mean'][0])")),
    Hostile("nothing returned", (OF_PRIOR, "returns NoneType instead of a joint distribution"), _prior("pass")),
    Hostile("a latent with a slash", (OF_PRIOR, "'a/b' is not a valid name for a latent", "letters, digits, spaces"),
            _prior("return tfd.JointDistributionNamed({'a/b': tfd.Normal(jnp.zeros((), data_spec.dtype), 1.0)})")),
    Hostile("a discrete latent", (OF_PRIOR, "latent 'k' is discrete", "marginalise"),
            _prior("return tfd.JointDistributionNamed({'k': tfd.Poisson(jnp.ones((), data_spec.dtype)), 'mean': tfd.Sample(tfd.Normal(jnp.zeros((), data_spec.dtype), 1.0), (2,))})"), ),
    Hostile("a mixture", (OF_PRIOR, "latent 'k' is discrete, or has a distribution without a map", "give a continuous one a normal prior"),
            _prior("zero = jnp.zeros((), data_spec.dtype)\nreturn tfd.JointDistributionNamed({'k': tfd.MixtureSameFamily(tfd.Categorical(jnp.stack([zero, zero])), tfd.Normal(jnp.stack([zero, zero]), zero + 1))})")),
    Hostile("a category", (OF_PRIOR, "latent 'k' is discrete (int32)", "logsumexp"),
            _prior("return tfd.JointDistributionNamed({'k': tfd.Categorical(jnp.zeros((3,), data_spec.dtype))})")),
    Hostile("batched latents", (OF_PRIOR, "its log density has shape (2,) instead of ()", "tfd.Sample"),
            _prior("return tfd.JointDistributionNamed({'mean': tfd.Normal(jnp.zeros((2,), data_spec.dtype), 1.0)})")),
    Hostile("a latent of size zero", (OF_PRIOR, "latent 'mean' has shape (0,)", "remedy: "),
            _prior("return tfd.JointDistributionNamed({'mean': tfd.Sample(tfd.Normal(jnp.zeros((), data_spec.dtype), 1.0), (0,))})")),
    Hostile("an unknown parent", (OF_PRIOR, "remedy: "),
            _prior("return tfd.JointDistributionNamed({'mean': lambda scael: tfd.Normal(jnp.zeros((), data_spec.dtype), scael)})")),
    Hostile("a local latent of other length", (": Mine: ", "local latent 'mean' of shape (2,) has 2 entries on axis 0", "num_entries"),
            attributes="local_latents = {'mean': 0}"),
    Hostile("a local latent that is not there", ("local_latents names 'meen'", "did you mean 'mean'?"),
            attributes="local_latents = {'meen': 0}"),
    Hostile("an axis that is not there", ("latent 'mean' of shape (2,) has no axis 1", "use one of 0 to 0"),
            attributes="blocks = {'columns': {'mean': 1}}"),
    Hostile("no predict", ("lacks the method predict", "predict(self, latents, inputs)", "docs/contracts/model.md"),
            {"predict": None, "log_likelihood": "def log_likelihood(self, latents, rows):\n    return rows['x'].sum(-1)"}),
    Hostile("no summaries", ("lacks the method summaries", "summaries(self, latents, rows)"), {"summaries": None}),
    Hostile("no outcome", (": Mine: ", "defines no `outcome`", "pointwise_mebibytes: 0"), {"outcome": None}),
    Hostile("a sum over rows", (OF_LIKELIHOOD, "has shape () for 2 rows", "one value for each row"), _likelihood("return right.sum()")),
    Hostile("a sum with an axis", (OF_LIKELIHOOD, "has shape (1,) for 2 rows"), _likelihood("return right.sum(keepdims=True)")),
    Hostile("a column", (OF_LIKELIHOOD, "has shape (2, 1) for 2 rows"), _likelihood("return right[:, None]")),
    Hostile("a fixed length", (OF_LIKELIHOOD, "has shape (2,) for 3 rows"), _likelihood("return jnp.resize(right, 2)")),
    Hostile("no likelihood returned", (OF_LIKELIHOOD, "has shape None for 2 rows"), _likelihood("pass")),
    Hostile("an integer likelihood", (OF_LIKELIHOOD, "returns int32 in an experiment of float32"), _likelihood("return right.astype('int32')")),
    Hostile("shapes that do not fit", (OF_LIKELIHOOD, "mine.py, line 33", "TypeError"), _likelihood("return right + jnp.zeros(7)")),
    Hostile("a branch on a latent", (OF_LIKELIHOOD, "needs the value of a traced array", "jnp.where"),
            _likelihood("return right if latents['mean'][0] > 0 else -right")),
    Hostile("a branch on an option", (OF_PRIOR, "needs the value of a traced array", "jax.lax.cond"),
            _prior("return tfd.Normal(0.0, 1.0) if self.options.scale > 2 else None")),
    Hostile("a shape from values", (OF_LIKELIHOOD, "needs the value of a traced array", "no shape may depend on values"),
            _likelihood("return right[rows['x'][:, 0] > 0]")),
    Hostile("NumPy on a latent", (OF_LIKELIHOOD, "NumPy was given a traced array", "use jax.numpy"),
            _likelihood("return right * np.exp(latents['mean'][0])")),
    Hostile("a global variable", (OF_LIKELIHOOD, "a traced array was kept", "keep no arrays between calls"),
            _likelihood("KEPT.append(right)\nreturn right + 0 * KEPT[0].sum()")),
    Hostile("random numbers", (OF_LIKELIHOOD, "gives other numbers each time it is called", "random numbers, clock or global"),
            _likelihood("return right + np.random.normal()")),
    Hostile("an exception", (OF_LIKELIHOOD, "mine.py, line 33", "ZeroDivisionError: integer division"), _likelihood("return right / (1 // 0)")),
    Hostile("a misspelt function", (OF_LIKELIHOOD, "has no attribute 'exxp'", "did you mean 'exp"), _likelihood("return jnp.exxp(right)")),
    Hostile("a callback without a gradient", ("mine.py", "remedy: "),
            _likelihood("return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(right.shape, right.dtype), right)")),
    Hostile("a broken constructor", ("Mine.__init__", "ValueError: no"),
            {"__init__": "def __init__(self, options, spec):\n    raise ValueError('no')"}),
    Hostile("a broken import", ("mine.py, line", "ModuleNotFoundError: No module named 'numppy'", "remedy: "), head="import numppy\n" + HEAD),
    Hostile("summaries in a list", (OF_SUMMARIES, "returns list instead of a dict of named arrays"), _summaries("return [latents['mean']]")),
    Hostile("integer summaries", (OF_SUMMARIES, "summary 'sign' has dtype int", ".astype"),
            _summaries("return {'sign': jnp.argmax(latents['mean'])}")),
    Hostile("a summary that is not an array", (OF_SUMMARIES, "summary 'mean' is not an array"), _summaries("return {'mean': None}")),
    Hostile("a summary of strings", (OF_SUMMARIES, "remedy: "), _summaries("return {'mean': 'mean'}")),
    Hostile("a summary of another's name", (OF_SUMMARIES, "summary 'log_density' is added for every model"),
            _summaries("return {'log_density': latents['mean']}")),
    Hostile("an empty summary", (OF_SUMMARIES, "summary 'mean' has shape (0,)"), _summaries("return {'mean': latents['mean'][:0]}")),
    Hostile("a summary of a misspelt latent", (OF_SUMMARIES, "asks for 'mu'", "latents mean"), _summaries("return {'mu': latents['mu']}")),
    Hostile("a shape of a summary from values", (OF_SUMMARIES, "needs the value of a traced array"),
            _summaries("return {'some': latents['mean'][jnp.nonzero(latents['mean'])]}")),
    Hostile("an error in predict alone", ("Mine.predict: ", "RuntimeError: not yet"),
            {"log_likelihood": "def log_likelihood(self, latents, rows):\n    return (rows['x'] * latents['mean']).sum(-1)",
             "predict": "def predict(self, latents, inputs):\n    raise RuntimeError('not yet')"}),
    Hostile("a prediction that is not a distribution", ("Mine.predict: ", "returns", "instead of a distribution"),
            {"log_likelihood": "def log_likelihood(self, latents, rows):\n    return (rows['x'] * latents['mean']).sum(-1)",
             "predict": "def predict(self, latents, inputs):\n    return latents['mean']"}),
    Hostile("predictions of another shape", ("Mine.predict: ", "its draws have shape (3,) for 3 rows, outcomes (3, 2)"),
            {"log_likelihood": "def log_likelihood(self, latents, rows):\n    return (rows['x'] * latents['mean']).sum(-1)",
             "predict": "def predict(self, latents, inputs):\n    return tfd.Normal(inputs['x'][:, 0], 1.0)"}),
    Hostile("a misspelt outcome", ("Mine.outcome: asks for 'y'", "fields x"), {"outcome": "def outcome(self, rows):\n    return rows['y']"}),
    Hostile("a gradient of its own in another precision", ("Mine.log_likelihood_and_gradient", "in float64, and a gradient with the name, shape and dtype of each latent: mean float32[2]"),
            {"log_likelihood_and_gradient": "def log_likelihood_and_gradient(self, latents, rows, is_row):\n    return jnp.zeros(()), {'mean': latents['mean'].astype('float64')}"}),
    Hostile("a sum of its own in another precision", ("Mine.log_likelihood_and_gradient", "one number in float64"),
            {"log_likelihood_and_gradient": "def log_likelihood_and_gradient(self, latents, rows, is_row):\n    return jnp.zeros((), 'float32'), dict(latents)"}),
    Hostile("a gradient of its own that is none", ("Mine.log_likelihood_and_gradient", "the name, shape and dtype of each latent"),
            {"log_likelihood_and_gradient": "def log_likelihood_and_gradient(self, latents, rows, is_row):\n    return jnp.zeros(()), {'mean': None}"}),
    Hostile("a fast path without a gradient", ("Mine.log_likelihood_and_gradient", "the name, shape and dtype of each latent"),
            {"log_likelihood_and_gradient": "def log_likelihood_and_gradient(self, latents, rows, is_row):\n    return jnp.zeros(())"}),
    Hostile("a gradient of its own with other names", ("Mine.log_likelihood_and_gradient", "the name, shape and dtype of each latent"),
            {"log_likelihood_and_gradient": "def log_likelihood_and_gradient(self, latents, rows, is_row):\n    return jnp.zeros(()), {'mu': latents['mean']}"}),
)  # fmt: skip

CONFIGURATIONS = (
    Hostile("one chain of a kernel that compares chains", ("key 'sampling.chains': kernel 'chees' takes at least 2 chains", "chains: 2"),
            experiment={"kernel": {"name": "chees"}, **_with(sampling={"chains": 1})}),
    Hostile("one chain a group", ("key 'sampling.chains': kernel 'chees'", "a chain group has 1"),
            experiment={"kernel": {"name": "chees"}, **_with(sampling={"mode": "independent", "chains": 2, "chain_groups": 2})}),
    Hostile("a GPU where there is none", ("key 'compute.platform': is 'gpu', and this machine has none", "platform: auto"),
            experiment={"compute": {"platform": "gpu"}}),
    Hostile("a TPU where there is none", ("key 'compute.platform': is 'tpu', and this machine has none",),
            experiment={"compute": {"platform": "tpu"}}),
    Hostile("more devices than there are", ("key 'compute.mesh': chain 1 x data 4096 needs 4096 devices", "mesh: auto"),
            experiment={"compute": {"platform": "cpu", "mesh": {"data": 4096}}}),
    Hostile("chains that devices do not divide", ("key 'compute.mesh.chain'",), experiment={"compute": {"mesh": {"chain": 3}}}),
    Hostile("zero rows", ("key 'data.num_rows'", "greater than or equal to 1"), experiment={"data": {"source": "gaussian", "num_rows": 0}}),
    Hostile("zero columns", ("key 'data.dimension'", "greater than or equal to 1"), experiment={"data": {"source": "gaussian", "dimension": 0}}),
    Hostile("zero chains", ("key 'sampling.chains'",), experiment=_with(sampling={"chains": 0})),
    Hostile("all rows held out", ("key 'data.held_out_fraction'",), experiment=_with(data={"held_out_fraction": 1.0})),
    Hostile("not a number", ("key 'model.prior_scale'",), experiment={"model": {"name": "gaussian", "prior_scale": float("nan")}}),
    Hostile("a precision that does not exist", ("key 'compute.dtype'",), experiment=_with(compute={"dtype": "float16"})),
)  # fmt: skip
"""Refused when the configuration is read, or for a job on this machine, before any data are."""
