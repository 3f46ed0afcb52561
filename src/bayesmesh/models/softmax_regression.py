"""Bayesian softmax regression with independent normal priors on weights and biases.

The model of TensorFlow Probability's tutorial "Distributed inference with JAX" (weights and biases N(0, 1), pixels
divided by 255), for any table of non-negative features and class labels.

On a GPU, matrices of bytes are multiplied on tensor cores, with exact terms and float32 sums. bfloat16 holds every byte
exactly, and a float32 number is the sum of three bfloat16 numbers, so three bfloat16 products with float32 sums give the
product (after Ootomo and Yokota 2022, "Recovering single precision accuracy from Tensor Cores").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Integer
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.settings import Settings
from bayesmesh.models._outcomes import check_labels
from bayesmesh.models.base import Axis, DataSpec, Latents, Model, Predictive, Prior, ReadBlocks, Rows, Shown
from bayesmesh.models.options import SoftmaxRegressionOptions as Options

tfd = tfp.distributions

_BLOCK_ROWS = 4096
"""Rows of a partial sum: tensor cores truncate sums instead of rounding them, which would bias a long sum."""


class SoftmaxRegression(Model):
    """Labels in ``num_classes`` classes from features divided by ``feature_scale``.

    Reads the fields ``features`` (num_features,) and ``label`` (), and the constants ``num_classes`` and
    ``feature_scale``.
    """

    pretty_name = "Softmax regression"
    offers = ("averaging",)
    options: Options

    @classmethod
    def check_all_rows(cls, options: Settings, spec: DataSpec, read_blocks: ReadBlocks) -> None:
        """Check that every label is one of the classes."""
        check_labels("label", int(spec.constants["num_classes"]), read_blocks)

    def axes(self) -> Mapping[str, tuple[Axis | None, ...]]:
        """Return the names of features and classes."""
        about = self.spec.variables.get("label")
        is_whole = about is not None and len(about.levels) == self.spec.constants["num_classes"]
        classes = Axis("class", about.levels if about is not None and is_whole else None)
        features = Axis("feature", self.spec.labels.get("features"))
        return {"weights": (features, classes), "biases": (classes,), "logits": (None, classes)}

    def shown(self) -> Sequence[Shown]:
        """Return the weights and the biases."""
        return Shown("weights", "Weights of the features"), Shown("biases", "Biases of the classes, less their mean")

    def described(self) -> Mapping[str, object]:
        """Return the assumptions of the model, and the meaning of its logits."""
        scale = f"normal(0, {self.options.prior_scale:g})"
        facts = {
            "Outcome": "one of several classes, by the softmax of linear scores",
            "Priors": f"weights and biases {scale}",
        }
        return {"facts": facts, "meanings": {"logits": "logits of the classes of single rows, less their mean; the first number counts the probe rows, which are spread evenly over the data"}}  # fmt: skip

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return the prior of ``weights`` (num_features, num_classes) and ``biases`` (num_classes,)."""
        (num_features,) = data_spec.fields["features"].shape
        num_classes = int(data_spec.constants["num_classes"])
        zero = jnp.zeros((), data_spec.dtype)
        normal = tfd.Normal(zero, zero + self.options.prior_scale)
        return tfd.JointDistributionNamed(
            {"weights": tfd.Sample(normal, (num_features, num_classes)), "biases": tfd.Sample(normal, (num_classes,))}
        )

    def _logits(self, latents: Latents, rows: Rows) -> Float[Array, "rows classes"]:
        weights = latents["weights"]
        # Scaling the product instead of the pixels keeps a second copy of the images out of memory.
        scale = jnp.asarray(1.0 / self.spec.constants["feature_scale"], weights.dtype)
        return (rows["features"].astype(weights.dtype) @ weights) * scale + latents["biases"][None]

    def log_likelihood(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the log probability of each row's label, in nats, shape (rows,)."""
        return self.predict(latents, rows).log_prob(self.outcome(rows))

    def log_likelihood_and_gradient_on_gpu(
        self, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]
    ) -> tuple[Float[Array, ""], Latents]:
        """Multiply pixels and weights on the tensor cores, where features are bytes."""
        features, weights = rows["features"], latents["weights"]
        if not are_bytes(features) or weights.dtype != jnp.float32:
            return self.log_likelihood_and_gradient(latents, rows, is_row)
        scale = jnp.asarray(1.0 / self.spec.constants["feature_scale"], weights.dtype)
        logits = byte_product(features, weights) * scale + latents["biases"][None]
        log_shares = jax.nn.log_softmax(logits)
        is_label = self.outcome(rows)[:, None] == jnp.arange(logits.shape[1])[None]
        by_row = jnp.sum(jnp.where(is_label, log_shares, 0), axis=1)
        residual = jnp.where(is_row[:, None], is_label - jnp.exp(log_shares), 0)
        gradient = {"weights": transposed_byte_product(features, residual) * scale, "biases": residual.sum(0)}
        return jnp.sum(jnp.where(is_row, by_row, 0), dtype=jnp.float64), {k: gradient[k] for k in latents}

    def observed_information(self, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]) -> Mapping[str, Latents]:
        """Sum p_a (1[a = b] - p_b) x x^T over rows, x with a 1 for the bias: a matrix product for each pair of classes."""
        weights = latents["weights"]
        num_features, num_classes = weights.shape
        scaled = rows["features"].astype(weights.dtype) / self.spec.constants["feature_scale"]
        inputs = jnp.concatenate([scaled, jnp.ones_like(scaled[:, :1])], axis=1)
        p = jax.nn.softmax(self._logits(latents, rows)) * is_row[:, None]
        pairs = jnp.triu_indices(num_classes, 1)
        between = jax.lax.map(lambda ab: -(inputs.T * (p[:, ab[0]] * p[:, ab[1]])[None]) @ inputs, pairs)
        every = jnp.zeros((num_classes, num_classes, *between.shape[1:]), weights.dtype)
        every = every.at[pairs].set(between).at[pairs[::-1]].set(between)
        # A constant added to all logits changes nothing, so the sum over classes is 0 on either side.
        same = jnp.arange(num_classes)
        every = every.at[same, same].set(-every.sum(1))
        part = {"weights": slice(num_features), "biases": num_features}
        axes = {
            ("weights", "weights"): (2, 0, 3, 1), ("weights", "biases"): (2, 0, 1),
            ("biases", "weights"): (0, 2, 1), ("biases", "biases"): (0, 1),
        }  # fmt: skip
        return {a: {b: every[:, :, part[a], part[b]].transpose(axes[a, b]) for b in latents} for a in latents}

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return a categorical distribution over classes for each row."""
        return tfd.Categorical(logits=self._logits(latents, inputs))

    def outcome(self, rows: Rows) -> Int[Array, " rows"]:
        """Return the label of each row, int32."""
        return rows["label"].astype(jnp.int32)

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return the quantities that the likelihood identifies: logits and biases less their mean over classes."""
        logits, biases = self._logits(latents, rows), latents["biases"]
        return {"logits": logits - logits.mean(-1, keepdims=True), "biases": biases - biases.mean()}


def are_bytes(values: Array) -> bool:
    """Return whether bfloat16 represents every value of the array's dtype."""
    return values.dtype in (jnp.uint8, jnp.int8)


def byte_product(values: Integer[Array, "rows k"], factor: Float[Array, "k n"]) -> Float[Array, "rows n"]:
    """Return the product of bytes and float32 numbers.

    Sums over columns are not split: each block of columns would write the product once more. Over the 784 pixels of
    MNIST, the relative error of the gradient is 5e-6.
    """
    return _add_parts(_dot(values, _in_three(factor), ((1,), (0,)), ((), ())))


def transposed_byte_product(values: Integer[Array, "rows k"], factor: Float[Array, "rows n"]) -> Float[Array, "k n"]:
    """Return the product of the transposed bytes and float32 numbers, summed in blocks of rows."""
    rows = len(values)
    blocks = max(1, -(-rows // _BLOCK_ROWS))
    each = -(-rows // blocks)

    def cut(x: Array) -> Array:
        return jnp.pad(x, ((0, blocks * each - rows), (0, 0))).reshape(blocks, each, x.shape[1])

    partial = _dot(cut(values), cut(_in_three(factor)), ((1,), (1,)), ((0,), (0,)))
    return _add_parts(partial.sum(0))


def _in_three(factor: Float[Array, "m n"]) -> Float[Array, "m parts"]:
    """Return three bfloat16 matrices side by side whose sum is the factor."""
    # The compiler might optimise away a conversion there and back.
    high = jax.lax.reduce_precision(factor, exponent_bits=8, mantissa_bits=7)
    middle = jax.lax.reduce_precision(factor - high, exponent_bits=8, mantissa_bits=7)
    return jnp.concatenate([high, middle, factor - high - middle], axis=-1).astype(jnp.bfloat16)


def _dot(left: Array, right: Array, contracted: tuple[tuple[int], tuple[int]], batch: tuple[tuple[int, ...], tuple[int, ...]]) -> Array:  # fmt: skip
    # XLA has no such product on CPUs, where the tests run.
    narrow = jnp.bfloat16 if jax.default_backend() == "gpu" else jnp.float32
    numbers = (contracted, batch)
    return jax.lax.dot_general(
        left.astype(narrow), right.astype(narrow), numbers, preferred_element_type=jnp.float32
    )  # fmt: skip


def _add_parts(product: Float[Array, "m parts"]) -> Float[Array, "m n"]:
    """Return the sum of the three products, the smallest first."""
    high, middle, low = jnp.split(product, 3, axis=-1)
    return low + middle + high
