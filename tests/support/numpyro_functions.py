"""Functions with NumPyro's primitives, as a user's own module would hold them."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.experimental.ode import odeint
from numpyro import distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.infer.reparam import LocScaleReparam


def level(rows: Any) -> None:
    """Emissions around one level, with noise of an unknown scale; all fields as one mapping."""
    mean = numpyro.sample("mean", dist.Normal(0, 2))
    noise = numpyro.sample("noise", dist.LogNormal(1, 0.3))
    series = rows["emissions"]
    with numpyro.plate("rows", len(series)):
        numpyro.sample("emission", dist.Normal(mean, noise).expand(series.shape[1:]).to_event(1), obs=series)


def rich(x: Any, y: Any = None) -> None:
    """Supports that depend on latents, a simplex, factors with and without rows, a plate of its own, and a scale."""
    noise = numpyro.sample("noise", dist.LogNormal(0, 1))
    bound = numpyro.sample("bound", dist.Uniform(-noise, noise))
    mixture = numpyro.sample("mixture", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    with numpyro.plate("columns", x.shape[1]):
        weights = numpyro.sample("weights", dist.StudentT(4, 0, 2))
    numpyro.factor("sparse", -0.1 * jnp.abs(weights).sum())
    mean = numpyro.deterministic("mean", x @ weights + mixture[0] + bound)
    with numpyro.plate("rows", len(x)):
        numpyro.factor("more", -0.01 * mean**2)
        with numpyro.handlers.scale(scale=0.5):
            numpyro.sample("y", dist.Normal(mean, noise), obs=y)


def schools(y: Any, sigma: Any) -> None:
    """Effects for each row: all data are one row."""
    mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def without_plate(x: Any, y: Any, num_classes: Any) -> None:
    """Observed values without a plate, counts of a constant; the rows are on their first axis."""
    slope = numpyro.sample("slope", dist.Normal(jnp.zeros(num_classes - 1), 1).to_event(1))
    numpyro.sample("y", dist.Normal(x @ slope, 1), obs=y)


FACTORS = jnp.array([1.0, 2.0])


def with_deterministics(y: Any) -> None:
    """Quantities with an axis of their own, and of the rows."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.deterministic("twice", 2 * mean * FACTORS)
    with numpyro.plate("rows", len(y)):
        mu = numpyro.deterministic("mu", mean * y)
        numpyro.sample("y", dist.Normal(mu, 1), obs=y)


def weighted(y: Any, x: Any) -> None:
    """Rows that count as often as a field says; NumPyro wants weights above 0, and placeholder rows are 0."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)), numpyro.handlers.scale(scale=x[:, 0]):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def masked(y: Any, x: Any) -> None:
    """Rows that a mask takes out of the likelihood."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)), numpyro.handlers.mask(mask=x[:, 0] > 0):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def two_outcomes(y: Any, x: Any) -> None:
    """Two sites observed in each row."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)
        numpyro.sample("x", dist.Normal(mean, 1), obs=x[:, 0])


def half_observed(y: Any, x: Any) -> None:
    """Rows whose outcome is missing, as NumPyro's `obs_mask` has them."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y, obs_mask=x[:, 0] > 0)


def flat(y: Any) -> None:
    """A latent whose own density does not count."""
    mean = numpyro.sample("mean", dist.Normal(0, 1).mask(False))
    with numpyro.handlers.scale(scale=2.0):
        shift = numpyro.sample("shift", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean + shift, 1), obs=y)


def of_seven(y: Any) -> None:
    """A plate whose number of rows is a constant."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("rows", 7):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def of_dimensions(y: Any) -> None:
    """Latents with names that the posterior has for its dimensions."""
    chain, draw = numpyro.sample("chain", dist.Normal(0, 1)), numpyro.sample("draw", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(chain, draw), obs=y)


@numpyro.handlers.reparam(config={"effect": LocScaleReparam(0)})
def decorated(y: Any, x: Any) -> None:
    """A function inside a handler, which has no arguments with names."""
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    effect = numpyro.sample("effect", dist.Normal(0, scale))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(effect + x[:, 0], 1), obs=y)


def _unnamed(function: Any) -> Any:
    return lambda *args, **kwargs: function(*args, **kwargs)


unnamed = _unnamed(of_seven)
twice = functools.wraps(decorated)(_unnamed(decorated))


def divided(y: Any) -> None:
    """Counts by class, of as many as each row has: NumPyro draws them only where it knows the largest number."""
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(y.shape[1])))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Multinomial(total_count=y.sum(axis=1), probs=shares), obs=y)


def discrete(y: Any) -> None:
    """A latent that is a count."""
    numpyro.sample("y", dist.Normal(numpyro.sample("count", dist.Poisson(3)), 1), obs=y)


def _with(distribution: Any, y: Any) -> None:
    numpyro.sample("a", distribution)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(0, 1), obs=y)


def on_the_sphere(y: Any) -> None:
    """A direction, for which NumPyro has no map."""
    _with(dist.ProjectedNormal(jnp.ones(3)), y)


def with_zeros(y: Any) -> None:
    """A latent that is 0 in a part of its draws."""
    _with(dist.HurdleGamma(0.3, 2.0, 1.0), y)


def shifted(y: Any) -> None:
    """A positive latent, moved by a transform of real numbers: NumPyro maps the whole line."""
    _with(dist.TransformedDistribution(dist.HalfNormal(1), dist.transforms.AffineTransform(2, 1)), y)


def squared(y: Any) -> None:
    """A real latent, under a transform of positive numbers."""
    _with(dist.TransformedDistribution(dist.Normal(1, 1), dist.transforms.PowerTransform(2.0)), y)


def blind() -> None:
    """Nothing is observed in the rows."""
    numpyro.sample("z", dist.Normal(numpyro.sample("mean", dist.Normal(0, 1)), 1), obs=jnp.zeros(()))


def summed(y: Any) -> None:
    """A factor over all rows, which has no axis of rows, beside a site that has one."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.factor("fit", -(((y - mean) ** 2).sum()))
    numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def from_the_data(y: Any) -> None:
    """A prior that is made of the rows."""
    mean = numpyro.sample("mean", dist.Normal(y.mean(), 1))
    numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def of_their_spread(y: Any) -> None:
    """A prior whose scale is that of the rows, and the same for all rows that are equal."""
    mean = numpyro.sample("mean", dist.Normal(0, jnp.maximum(y.std(), 0.05)))
    numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def process(x: Any, y: Any) -> None:
    """A Gaussian process whose values have the covariance of the rows as their prior."""
    gap = x[:, :1] - x[:, :1].T
    f = numpyro.sample("f", dist.MultivariateNormal(0, jnp.exp(-(gap**2)) + 1e-3 * jnp.eye(len(y))))
    numpyro.sample("y", dist.Normal(f, 1), obs=y)


def of_their_number(y: Any) -> None:
    """A prior that grows narrower with the number of rows."""
    mean = numpyro.sample("mean", dist.Normal(0, len(y) ** -0.5))
    numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def penalised_by_their_number(y: Any) -> None:
    """A factor without rows that counts them."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.factor("penalty", -0.5 * len(y) * mean**2)
    numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def in_a_part(y: Any) -> None:
    """A plate that takes a part of the rows."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y), subsample_size=1) as chosen:
        numpyro.sample("y", dist.Normal(mean, 1), obs=y[chosen])


def with_a_param(y: Any) -> None:
    """A number to be optimised, as in variational inference."""
    numpyro.sample("y", dist.Normal(numpyro.param("mean", 0.0), 1), obs=y)


def of_another_table(x: Any, z: Any) -> None:
    """An argument that is not a field."""
    numpyro.sample("y", dist.Normal(numpyro.sample("mean", dist.Normal(0, 1)) * x[:, 0], 1), obs=z)


def correlated(x: Any, y: Any) -> None:
    """Two columns with a correlation, given as a factor and as a matrix, and an outcome."""
    root = numpyro.sample("root", dist.LKJCholesky(2, 1.5))
    corr = numpyro.sample("corr", dist.LKJ(2, 1.5))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("x", dist.MultivariateNormal(0.0, scale_tril=root), obs=x)
        numpyro.sample("y", dist.Normal(0.0, 1.0 + corr[0, 1] ** 2), obs=y)


def grouped(y: Any) -> None:
    """Effects of as many groups as the data have, counted as in NumPyro's tutorials."""
    with numpyro.plate("groups", len(np.unique(y))):
        numpyro.sample("effect", dist.Normal(0, 1))


def grouped_by_jax(y: Any) -> None:
    """The same by the functions that a remedy may suggest."""
    with numpyro.plate("groups", len(jnp.unique(y))):
        numpyro.sample("effect", dist.Normal(0, 1))


def grouped_by_python(y: Any) -> None:
    """The same with a set."""
    with numpyro.plate("groups", len(set(y))):
        numpyro.sample("effect", dist.Normal(0, 1))


def nearly_flat(y: Any) -> None:
    """A prior whose draws underflow to 0, which is outside of its support."""
    precision = numpyro.sample("precision", dist.Gamma(0.001, 0.001))
    numpyro.sample("y", dist.LogNormal(0, precision**-0.5), obs=y)


def greek(y: Any) -> None:
    """Latents with names of other scripts."""
    numpyro.sample(
        "y", dist.Normal(numpyro.sample("α", dist.Normal(0, 1)), numpyro.sample("σ²", dist.HalfNormal(1))), obs=y
    )


def volatility(y: Any) -> None:
    """GARCH(1, 1): a scan carries the variance, which begins at that of the data and goes on with the latents."""
    base, recent = numpyro.sample("base", dist.HalfNormal(1)), numpyro.sample("recent", dist.Uniform(0, 1))

    def step(variance: Any, value: Any) -> tuple[Any, Any]:
        return base + recent * value**2 + 0.5 * variance, variance

    numpyro.sample("y", dist.Normal(0, jnp.sqrt(jax.lax.scan(step, jnp.var(y), y)[1])), obs=y)


def growth(t: Any, y: Any) -> None:
    """Logistic growth: the solver of a differential equation has latents and times of the data in one state."""
    rate, start = numpyro.sample("rate", dist.LogNormal(-1, 1)), numpyro.sample("start", dist.LogNormal(0, 1))
    path = odeint(lambda size, _: rate * size * (1 - size), start, t)
    numpyro.sample("y", dist.Normal(path, 1), obs=y)


def walk(y: Any) -> None:
    """A random walk in NumPyro's own scan, which draws its steps as latents."""
    step_size = numpyro.sample("step_size", dist.HalfNormal(1))

    def step(level: Any, value: Any) -> tuple[Any, None]:
        level = numpyro.sample("level", dist.Normal(level, step_size))
        numpyro.sample("y", dist.Normal(level, 1), obs=value)
        return level, None

    scan(step, jnp.zeros((), y.dtype), y)


def by_site(count: Any, y: Any) -> None:
    """Return nothing; groups are numbered by `count`, from 0 to 3."""
    effects = numpyro.sample("effects", dist.Normal(0, 1).expand([4]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(effects[count], sigma), obs=y)


def of_an_unknown_range(y: Any) -> None:
    """NumPyro gives outcomes outside the support a density."""
    end = numpyro.sample("end", dist.LogNormal(0, 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Uniform(0, end).expand([len(y)]), obs=y)
