"""Compare gradients of `glm` with those of models written by hand: `python tools/regression_speed.py [ROWS [GROUPS]]`.

Both read the same rows, and are evaluated in turns by 4 chains, through the programs of an experiment.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.blocks import ComputeSettings
from bayesmesh.config.data_spec import DataSpec, FieldSpec, Variable
from bayesmesh.config.registry import load_component, options_class
from bayesmesh.config.settings import Settings
from bayesmesh.data.views import prepare_rows
from bayesmesh.models.base import Model
from bayesmesh.sampling.density.mesh import configure_jax
from bayesmesh.sampling.program.sizes import make_program
from bayesmesh.workflow.components import program_settings
from bayesmesh.workflow.jobs import Job

tfd = tfp.distributions

CHAINS, REPEATS, ROUNDS = 4, 5, 7
FORMULA = "y ~ x1 + x2 + (1 | g)"


class Options(Settings):
    """A model by hand has none."""


class ByHand(Model):
    """Effects in the coordinates of their prior, as a user of JAX would write it."""

    pretty_name = "By hand"
    offers = ()
    extra: ClassVar[tuple[str, ...]] = ()

    def prior(self, data_spec: DataSpec) -> Any:
        """Return priors like those of `glm`."""
        one = jnp.ones((), data_spec.dtype)
        parts = {"intercept": tfd.Normal(0 * one, 5 * one), "b": tfd.Sample(tfd.Normal(0 * one, 2.5 * one), (2,))}
        parts |= {
            "sd": tfd.HalfNormal(one),
            "z": tfd.Sample(tfd.Normal(0 * one, one), (data_spec.constants["groups"],)),
        }
        of_family = {"shape": tfd.Gamma(2 * one, 0.5 * one), "hu": tfd.Beta(one, one)}
        return tfd.JointDistributionNamed(parts | {name: of_family[name] for name in self.extra})

    def predict(self, latents: Any, inputs: Any) -> Any:
        """Return nothing of use: no outcome is predicted."""
        raise NotImplementedError

    def summaries(self, latents: Any, rows: Any) -> Any:
        """Return the standard deviation of the effects."""
        return {"sd": latents["sd"]}

    def eta(self, z: Mapping[str, Any], rows: Mapping[str, Any]) -> Any:
        """Return the predictor of each row."""
        return z["intercept"] + z["b"][0] * rows["x1"] + z["b"][1] * rows["x2"] + z["sd"] * z["z"][rows["g"]]


class Poisson(ByHand):
    """Counts."""

    def log_likelihood(self, latents: Any, rows: Any) -> Any:
        """Return the log density of each row."""
        eta = self.eta(latents, rows)
        return rows["y"] * eta - jnp.exp(eta) - rows["constant"]


class HurdleGamma(ByHand):
    """Amounts that are often 0."""

    extra: ClassVar[tuple[str, ...]] = ("shape", "hu")

    def log_likelihood(self, latents: Any, rows: Any) -> Any:
        """Return the log density of each row."""
        eta, shape, hu, y = self.eta(latents, rows), latents["shape"], latents["hu"], rows["y"]
        is_zero, log_rate = y == 0, jnp.log(latents["shape"]) - eta
        positive = jnp.where(is_zero, 1.0, y)
        gamma = shape * log_rate + (shape - 1) * jnp.log(positive) - jnp.exp(log_rate) * positive - gammaln(shape)
        return jnp.where(is_zero, jnp.log(hu), jnp.log1p(-hu) + gamma)


class Weibull(ByHand):
    """Times, some of them censored on the right."""

    extra: ClassVar[tuple[str, ...]] = ("shape",)

    def log_likelihood(self, latents: Any, rows: Any) -> Any:
        """Return the log density of each row, or the log probability of a longer time."""
        shape, log_y = latents["shape"], jnp.log(rows["y"])
        log_hazard = shape * (log_y - self.eta(latents, rows) + gammaln(1 + 1 / shape))
        return jnp.where(rows["known"] == 1, 0.0, jnp.log(shape) - log_y + log_hazard) - jnp.exp(log_hazard)


FAMILIES: dict[str, tuple[type[ByHand], dict[str, Any]]] = {
    "poisson": (Poisson, {}),
    "hurdle_gamma": (HurdleGamma, {}),
    "weibull": (Weibull, {"censored": "known"}),
}


def rows_of(family: str, num_rows: int, num_groups: int) -> dict[str, np.ndarray]:
    """Return simulated rows."""
    random = np.random.default_rng(1)
    rows = {"x1": random.normal(size=num_rows), "x2": random.normal(size=num_rows)}
    rows["g"] = random.integers(0, num_groups, num_rows).astype(np.int32)
    mean = np.exp(0.5 * rows["x1"] - 0.3 * rows["x2"] + random.normal(0, 0.6, num_groups)[rows["g"]])
    match family:
        case "poisson":
            count = random.poisson(mean)
            return rows | {"y": count.astype(np.int32), "constant": np.asarray(gammaln(count + 1.0), float)}
        case "hurdle_gamma":
            return rows | {"y": np.where(random.random(num_rows) < 0.25, 0, random.gamma(2, mean / 2))}
        case _:
            time_, end = mean * random.weibull(1.5, num_rows), random.exponential(4, num_rows)
            return rows | {"y": np.minimum(time_, end), "known": (time_ > end).astype(np.int32)}


def gradient_of(
    name: str, options: Mapping[str, Any], rows: Mapping[str, np.ndarray], num_groups: int
) -> Callable[[], None]:
    """Return a function that evaluates gradients of all chains, compiled."""
    fields = {k: FieldSpec((), v.dtype.name) for k, v in rows.items()}
    variables = {"known": Variable("category", levels=("none", "right"))}
    spec = DataSpec(len(rows["y"]), fields, {"groups": num_groups}, "float32", variables=variables)
    own = options_class("model", name)(**options)
    spec, made = prepare_rows(functools.partial(load_component("model", name).prepare, own), spec, rows)
    config = {
        "model": {"name": name, **options}, "kernel": {"name": "hmc"}, "sampling": {"chains": CHAINS}, "compute": {},
    }  # fmt: skip
    job = Job(stage="sample", experiment="speed", config=config, num_chains=CHAINS)
    program = make_program(program_settings(job), spec, slice_draws=1)
    data, target = program.put_data(made), program.target
    at = jax.tree.map(lambda x: jnp.full((CHAINS, *x.shape), 0.01, x.dtype), target.position.position_shapes)

    def evaluate(at: Any, data: Any) -> Any:
        bound = target.bind(data)

        def once(_: object, at: Any) -> Any:
            return jax.tree.map(lambda x, g: x + 1e-12 * g, at, bound.log_density(at).gradient)

        return jax.lax.fori_loop(0, REPEATS, once, at)

    compiled = jax.jit(evaluate).lower(at, data).compile()
    return lambda: jax.block_until_ready(compiled(at, data))


def main(num_rows: int, num_groups: int) -> None:
    """Print for each family the milliseconds of a gradient of all chains, and the ratio."""
    # Before anything is computed.
    configure_jax(ComputeSettings())
    for family, (by_hand, options) in FAMILIES.items():
        rows = rows_of(family, num_rows, num_groups)
        columns = {k: v for k, v in rows.items() if k != "constant"}
        ours = gradient_of("glm", {"formula": FORMULA, "family": family, **options}, columns, num_groups)
        theirs = gradient_of(f"{Path(__file__).stem}:{by_hand.__name__}", {}, rows, num_groups)
        seconds: dict[Callable[[], None], list[float]] = {ours: [], theirs: []}
        for _ in range(ROUNDS):
            for contender, taken in seconds.items():
                begin = time.perf_counter()
                contender()
                taken.append((time.perf_counter() - begin) / REPEATS)
        medians = [float(np.median(seconds[contender])) for contender in (ours, theirs)]
        print(
            f"{family}: glm {medians[0] * 1e3:.1f} ms, by hand {medians[1] * 1e3:.1f} ms, ratio {medians[1] / medians[0]:.2f}"
        )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(*(int(word.replace("_", "")) for word in sys.argv[1:] or ("1_000_000", "1_000")))
