"""Bayesian multilayer perceptron for classification and regression, with independent normal priors on all weights.

The setting of Izmailov, Vikram, Hoffman and Wilson 2021, "What are Bayesian neural network posteriors really like?"
(ICML), who sample such networks with full-batch Hamiltonian Monte Carlo and assess convergence in function space: hidden
units may be permuted, so that weights are not identified, but predictions are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.settings import Settings
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.models._outcomes import check_labels
from bayesmesh.models.base import DataSpec, Latents, Model, Predictive, Prior, ReadBlocks, Rows
from bayesmesh.models.options import NeuralNetworkOptions as Options

tfd = tfp.distributions

ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {"silu": jax.nn.silu, "tanh": jnp.tanh, "relu": jax.nn.relu}


class NeuralNetwork(Model):
    """The outcome of each row given its features, divided by the constant ``feature_scale`` where there is one.

    Latents ``weights_I`` (inputs, units) and ``biases_I`` (units,) of layer I, and ``noise`` () for regression.
    """

    pretty_name = "Bayesian neural network"
    offers = ("averaging",)
    offers_only_with: ClassVar[Mapping[str, Mapping[str, str]]] = {"averaging": {"task": "classification"}}
    options: Options

    def __init__(self, options: Settings, spec: DataSpec) -> None:
        super().__init__(options, spec)
        own = self.options
        for key, name in (*(("features", name) for name in own.features), ("outcome", own.outcome)):
            if name not in spec.fields:
                raise ConfigError(f"key 'model.{key}': no field '{name}' in the data", suggest(name, spec.fields))
        if spec.fields[own.outcome].shape != ():
            raise ConfigError(
                f"key 'model.outcome': '{own.outcome}' has several numbers in a row", "name a field with one"
            )
        inputs = sum(math.prod(spec.fields[name].shape) for name in own.features)
        outputs = self._num_classes() if own.task == "classification" else 1
        self.sizes = (inputs, *own.widths, outputs)

    @classmethod
    def check_all_rows(cls, options: Settings, spec: DataSpec, read_blocks: ReadBlocks) -> None:
        """Check that every label is one of the classes."""
        model = cls(options, spec)
        if model.options.task == "classification":
            check_labels(model.options.outcome, model.sizes[-1], read_blocks)

    def _num_classes(self) -> int:
        """Return the number of labels, from a category or from the constant ``num_classes``."""
        about = self.spec.variables.get(self.options.outcome)
        if about is not None and about.levels:
            return len(about.levels)
        if "num_classes" not in self.spec.constants:
            problem = f"key 'model.task': '{self.options.outcome}' is not a category, and the data have no num_classes"
            raise ConfigError(problem, "declare its column as a category, or write\n    model:\n      task: regression")
        return int(self.spec.constants["num_classes"])

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return independent normal priors; that of a weight is narrower the more inputs its unit has."""
        own, zero = self.options, jnp.zeros((), data_spec.dtype)
        parts = {}
        for i, (inputs, units) in enumerate(zip(self.sizes[:-1], self.sizes[1:], strict=True)):
            weight = tfd.Normal(zero, (zero + own.weight_scale) / math.sqrt(inputs))
            parts[f"weights_{i}"] = tfd.Sample(weight, (inputs, units))
            parts[f"biases_{i}"] = tfd.Sample(tfd.Normal(zero, zero + own.bias_scale), (units,))
        if own.task == "regression":
            parts["noise"] = tfd.HalfNormal(zero + own.noise_scale)
        return tfd.JointDistributionNamed(parts)

    def described(self) -> Mapping[str, object]:
        """Return a description of the network and its priors."""
        own = self.options
        layers = " · ".join(map(str, self.sizes))
        noise = f"; noise half_normal({own.noise_scale:g})" if own.task == "regression" else ""
        facts = {
            "Network": f"{layers} units, {own.activation}, for {own.task}",
            "Priors": f"weights normal(0, {own.weight_scale:g} / square root of the inputs of a unit), biases normal(0, {own.bias_scale:g}){noise}",
        }
        units = "weights_0" if own.widths and own.features == ("features",) else ""
        return {"facts": facts, "units": units, "meanings": {"logits": "logits of the classes of single rows, less their mean; the first number counts the probe rows, which are spread evenly over the data", "mean": "predicted mean of single rows; the number counts the probe rows"}}  # fmt: skip

    def _outputs(self, latents: Latents, rows: Rows) -> Float[Array, "rows outputs"]:
        """Return the outputs of the network: logits, or the mean."""
        activation, dtype = ACTIVATIONS[self.options.activation], latents["weights_0"].dtype
        fields = [rows[name] for name in self.options.features]
        layer = jnp.concatenate([x.reshape(len(x), -1).astype(dtype) for x in fields], axis=1)
        layer = layer * jnp.asarray(1.0 / self.spec.constants.get("feature_scale", 1.0), dtype)
        last = len(self.sizes) - 2
        for i in range(last + 1):
            layer = layer @ latents[f"weights_{i}"] + latents[f"biases_{i}"][None]
            layer = layer if i == last else activation(layer)
        return layer

    def log_likelihood(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the log probability of each row's label, or the log density of its numeric outcome, in nats."""
        return self.predict(latents, rows).log_prob(self.outcome(rows).astype(self._outcome_dtype(latents)))

    def _outcome_dtype(self, latents: Latents) -> jnp.dtype:
        return jnp.dtype(jnp.int32) if self.options.task == "classification" else latents["weights_0"].dtype

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return a categorical or a normal distribution for each row."""
        outputs = self._outputs(latents, inputs)
        if self.options.task == "classification":
            return tfd.Categorical(logits=outputs)
        return tfd.Normal(outputs[:, 0], latents["noise"])

    def outcome(self, rows: Rows) -> Shaped[Array, " rows"]:
        """Return the label of each row, int32, or its numeric outcome."""
        values = rows[self.options.outcome]
        return values.astype(jnp.int32) if self.options.task == "classification" else values

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return only predictions and the noise: logits less their mean over classes, or predicted means."""
        outputs = self._outputs(latents, rows)
        if self.options.task == "classification":
            return {"logits": outputs - outputs.mean(-1, keepdims=True)}
        return {"mean": outputs[:, 0], "noise": latents["noise"]}
