"""First examples of NumPyro's documentation, written anew, each with data simulated from known values.

Each model is written as its documentation writes it. `EXAMPLES` says how its data are made, and what must come back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer.reparam import LocScaleReparam, TransformReparam

Simulated = tuple[dict[str, np.ndarray], dict[str, Any]]
"""Fields of the data, and the values of latents or deterministics from which they were made."""

KNOTS = jnp.linspace(-1.5, 1.5, 4)
"""A constant of the module."""


class Example(NamedTuple):
    """How an example is run.

    Attributes:
        simulate: makes data and truths from a generator.
        options: options of the model.
        blocks: other keys of the experiment.
        refused: part of the message of an example that cannot run; empty if it runs.
        failed: gate that an example fails, though its numbers are right; empty if it passes.
    """

    simulate: Callable[[np.random.Generator], Simulated]
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed
    blocks: dict[str, Any] = {}  # noqa: RUF012 - never changed
    refused: str = ""
    failed: str = ""


@handlers.reparam(config={"theta": LocScaleReparam(0)})
def eight_schools(y: Any, sigma: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("J", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)


def schools(g: np.random.Generator) -> Simulated:
    theta, sigma = g.normal(4, 6, 12), g.uniform(3, 6, 12)
    return {"y": g.normal(theta, sigma), "sigma": sigma}, {"mu": 4.0, "tau": 6.0, "theta": theta}


def divorce(marriage: Any = None, age: Any = None, rate: Any = None) -> None:
    a = numpyro.sample("a", dist.Normal(0.0, 0.2))
    m, c = 0.0, 0.0
    if marriage is not None:
        m = numpyro.sample("bM", dist.Normal(0.0, 0.5)) * marriage
    if age is not None:
        c = numpyro.sample("bA", dist.Normal(0.0, 0.5)) * age
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    mu = numpyro.deterministic("mu", a + m + c)
    numpyro.sample("obs", dist.Normal(mu, sigma), obs=rate)


def states(g: np.random.Generator) -> Simulated:
    age = g.normal(0, 1, 50)
    marriage = -0.7 * age + g.normal(0, 0.7, 50)
    mu = 0.1 + 0.2 * marriage - 0.6 * age
    return {"marriage": marriage, "age": age, "rate": g.normal(mu, 0.5)}, {"a": 0.1, "bM": 0.2, "bA": -0.6, "mu": mu}


def lungs(patient: Any, week: Any, fvc: Any) -> None:
    mu_a = numpyro.sample("mu_a", dist.Normal(0.0, 5.0))
    sigma_a = numpyro.sample("sigma_a", dist.HalfNormal(5.0))
    mu_b = numpyro.sample("mu_b", dist.Normal(0.0, 2.0))
    sigma_b = numpyro.sample("sigma_b", dist.HalfNormal(2.0))
    with numpyro.plate("plate_i", 15):
        a = numpyro.sample("a", dist.Normal(mu_a, sigma_a))
        b = numpyro.sample("b", dist.Normal(mu_b, sigma_b))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    with numpyro.plate("data", len(patient)):
        numpyro.sample("obs", dist.Normal(a[patient] + b[patient] * week, sigma), obs=fvc)


def patients(g: np.random.Generator) -> Simulated:
    patient, week = np.repeat(np.arange(15), 12), g.normal(0, 1, 180)
    a, b = g.normal(2, 1.5, 15), g.normal(-1, 0.6, 15)
    data = {"patient": patient, "week": week, "fvc": g.normal(a[patient] + b[patient] * week, 0.8)}
    return data, {"mu_a": 2.0, "mu_b": -1.0, "sigma_a": 1.5, "sigma_b": 0.6, "sigma": 0.8, "a": a}


def counted_patients(patient: Any, week: Any, fvc: Any) -> None:
    a = numpyro.sample("a", dist.Normal(0, 5).expand([len(np.unique(patient))]))
    numpyro.sample("obs", dist.Normal(a[patient] - week, 1), obs=fvc)


def baseball(at_bats: Any, hits: Any) -> None:
    m = numpyro.sample("m", dist.Uniform(0, 1))
    kappa = numpyro.sample("kappa", dist.Pareto(1, 1.5))
    num_players = at_bats.shape[0]
    with numpyro.plate("num_players", num_players):
        phi = numpyro.sample("phi", dist.Beta(m * kappa, (1 - m) * kappa))
        numpyro.sample("obs", dist.Binomial(at_bats, probs=phi), obs=hits)


def players(g: np.random.Generator) -> Simulated:
    phi, at_bats = g.beta(0.27 * 30, 0.73 * 30, 18), g.integers(40, 400, 18)
    return {"at_bats": at_bats, "hits": g.binomial(at_bats, phi)}, {"m": 0.27, "phi": phi}


def logistic(x: Any, labels: Any) -> None:
    coefs = numpyro.sample("coefs", dist.Normal(jnp.zeros(x.shape[1]), jnp.ones(x.shape[1])))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 10.0))
    logits = jnp.sum(coefs * x + 0 * intercept, axis=-1) + intercept
    numpyro.sample("obs", dist.Bernoulli(logits=logits), obs=labels)


def flowers(g: np.random.Generator) -> Simulated:
    x, coefs = g.normal(size=(300, 3)), np.array([1.0, -0.5, 0.0])
    labels = (g.random(300) < 1 / (1 + np.exp(-(x @ coefs + 0.4)))).astype(int)
    return {"x": x, "labels": labels}, {"coefs": coefs, "intercept": 0.4}


def horseshoe(x: Any, y: Any) -> None:
    with numpyro.plate("features", x.shape[1]):
        lambdas = numpyro.sample("lambdas", dist.HalfCauchy(1.0))
        unscaled = numpyro.sample("unscaled_betas", dist.Normal(0.0, 1.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(0.1))
    betas = numpyro.deterministic("betas", tau * lambdas * unscaled)
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    numpyro.sample("Y", dist.Normal(x @ betas, sigma), obs=y)


def sparse(g: np.random.Generator) -> Simulated:
    x, betas = g.normal(size=(120, 6)), np.array([1.5, 0, 0, -1.0, 0, 0])
    return {"x": x, "y": g.normal(x @ betas, 0.5)}, {"betas": betas, "sigma": 0.5}


def _kernel(x: Any, z: Any, var: Any, length: Any, noise: Any) -> Any:
    k = var * jnp.exp(-0.5 * ((x[:, None] - z[None]) / length) ** 2)
    return k + (noise + 1e-6) * jnp.eye(x.shape[0])


def gaussian_process(x: Any, y: Any) -> None:
    var = numpyro.sample("kernel_var", dist.LogNormal(0.0, 1.0))
    noise = numpyro.sample("kernel_noise", dist.LogNormal(-2.0, 1.0))
    length = numpyro.sample("kernel_length", dist.LogNormal(0.0, 0.7))
    k = _kernel(x, x, var, length, noise)
    numpyro.sample("Y", dist.MultivariateNormal(loc=jnp.zeros(x.shape[0]), covariance_matrix=k), obs=y)


def curve(g: np.random.Generator) -> Simulated:
    x = np.sort(g.uniform(-3, 3, 40))
    k = 1.5 * np.exp(-0.5 * ((x[:, None] - x) / 0.8) ** 2)
    y = g.multivariate_normal(np.zeros(40), k + 0.04 * np.eye(40))
    return {"x": x, "y": y}, {"kernel_var": 1.5, "kernel_length": 0.8, "kernel_noise": 0.04}


def volatility(returns: Any) -> None:
    step_size = numpyro.sample("sigma", dist.Exponential(20.0))
    # Steps in units of their scale, as the page of a run that is written with the walk itself advises.
    s = numpyro.deterministic("s", step_size * numpyro.sample("z", dist.GaussianRandomWalk(num_steps=len(returns))))
    nu = numpyro.sample("nu", dist.Exponential(0.1))
    numpyro.sample("r", dist.StudentT(df=nu, loc=0.0, scale=jnp.exp(s)), obs=returns)


def market(g: np.random.Generator) -> Simulated:
    s = np.cumsum(g.normal(0, 0.05, 120))
    return {"returns": np.exp(s) * g.standard_t(8, 120)}, {"s": s}


def autoregression(y: Any) -> None:
    alpha_1 = numpyro.sample("alpha_1", dist.Normal(0, 1))
    alpha_2 = numpyro.sample("alpha_2", dist.Normal(0, 1))
    const = numpyro.sample("const", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))

    def transition(carry: Any, _: Any) -> Any:
        y_prev, y_prev_prev = carry
        m_t = const + alpha_1 * y_prev + alpha_2 * y_prev_prev
        y_t = numpyro.sample("y", dist.Normal(m_t, sigma))
        return (y_t, y_prev), m_t

    with handlers.condition(data={"y": y[2:]}):
        scan(transition, (y[1], y[0]), jnp.arange(len(y) - 2))


def series(g: np.random.Generator) -> Simulated:
    y = [0.0, 0.5]
    for _ in range(200):
        y.append(0.3 + 0.6 * y[-1] - 0.2 * y[-2] + g.normal(0, 0.5))
    return {"y": np.array(y)}, {"alpha_1": 0.6, "alpha_2": -0.2, "const": 0.3, "sigma": 0.5}


def mixture(data: Any) -> None:
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    ordered = dist.TransformedDistribution(
        dist.Normal(0.0, 5.0).expand([2]).to_event(1), dist.transforms.OrderedTransform()
    )
    locs = numpyro.sample("locs", ordered)
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("data", data["y"].shape[0]):
        components = dist.Normal(locs, scale)
        numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(probs=weights), components), obs=data["y"])


def clusters(g: np.random.Generator) -> Simulated:
    is_second = g.random(200) < 0.4
    return {"y": g.normal(np.where(is_second, 3.0, -1.0), 0.7)}, {"weights": [0.6, 0.4], "locs": [-1, 3], "scale": 0.7}


def ordinal(x: Any, y: Any) -> None:
    beta = numpyro.sample("b_x", dist.Normal(0, 1))
    with handlers.reparam(config={"c_y": TransformReparam()}):
        base = dist.Normal(0, 1).expand([3]).to_event(1)
        cuts = numpyro.sample("c_y", dist.TransformedDistribution(base, dist.transforms.OrderedTransform()))
    with numpyro.plate("obs", x.shape[0]):
        numpyro.sample("Y", dist.OrderedLogistic(x * beta, cuts), obs=y)


def grades(g: np.random.Generator) -> Simulated:
    x, cuts = g.normal(size=300), np.array([-1.0, 0.5, 1.5])
    y = (0.8 * x + g.logistic(size=300) > cuts[:, None]).sum(0)
    return {"x": x, "y": y}, {"b_x": 0.8, "c_y": cuts}


def fishing(x: Any, count: Any) -> None:
    gate = numpyro.sample("gate", dist.Beta(1, 1))
    a = numpyro.sample("a", dist.Normal(0, 2))
    b = numpyro.sample("b", dist.Normal(0, 1))
    rate = jnp.exp(a + b * x)
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.ZeroInflatedPoisson(gate, rate), obs=count)


def catches(g: np.random.Generator) -> Simulated:
    x = g.normal(size=250)
    count = np.where(g.random(250) < 0.3, 0, g.poisson(np.exp(1 + 0.4 * x)))
    return {"x": x, "count": count}, {"gate": 0.3, "a": 1.0, "b": 0.4}


def survival(time: Any, censored: Any, x: Any) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0, 2))
    beta = numpyro.sample("beta", dist.Normal(0, 1))
    rate = jnp.exp(alpha + beta * x)
    with numpyro.plate("cats", len(time)):
        with handlers.mask(mask=censored == 0):
            numpyro.sample("observed", dist.Exponential(rate), obs=time)
        with handlers.mask(mask=censored == 1):
            numpyro.factor("survived", -rate * time)


def adoptions(g: np.random.Generator) -> Simulated:
    x = g.normal(size=300)
    time = g.exponential(np.exp(1 - 0.5 * x))
    limit = 4.0
    data = {"time": np.minimum(time, limit), "censored": (time > limit).astype(int), "x": x}
    return data, {"alpha": -1.0, "beta": 0.5}


def splines(x: Any, y: Any) -> None:
    """Hinges at knots that a module constant holds."""
    basis = jnp.maximum(x[:, None] - KNOTS, 0)
    with numpyro.plate("knots", len(KNOTS)):
        w = numpyro.sample("w", dist.Normal(0, 2))
    level = numpyro.sample("level", dist.Normal(0, 2))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(level + basis @ w, 0.3), obs=y)


def hinges(g: np.random.Generator) -> Simulated:
    x, w = g.uniform(-2, 2, 200), np.array([1.0, -2.0, 1.5, 0.5])
    return {"x": x, "y": g.normal(0.3 + np.maximum(x[:, None] - np.asarray(KNOTS), 0) @ w, 0.3)}, {"w": w, "level": 0.3}


def covariance(y: Any) -> None:
    d = y.shape[1]
    theta = numpyro.sample("theta", dist.HalfCauchy(jnp.ones(d)).to_event(1))
    l_omega = numpyro.sample("L_omega", dist.LKJCholesky(d, jnp.ones(1)[0]))
    l_full = jnp.sqrt(theta)[..., None] * l_omega
    mu = jnp.zeros(d)
    numpyro.deterministic("corr", (l_omega @ l_omega.T)[0, 1])
    with numpyro.plate("observations", len(y)):
        numpyro.sample("obs", dist.MultivariateNormal(mu, scale_tril=l_full), obs=y)


def pairs(g: np.random.Generator) -> Simulated:
    cov = np.array([[1.0, 0.6], [0.6, 2.0]])
    return {"y": g.multivariate_normal([0, 0], cov, 200)}, {"theta": [1.0, 2.0], "corr": 0.6 / np.sqrt(2)}


def fixed_number(y: Any) -> None:
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("N", 60):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def sixty(g: np.random.Generator) -> Simulated:
    return {"y": g.normal(0.5, 1, 60)}, {"mean": 0.5}


def weighted(x: Any, y: Any) -> None:
    """A prior of its own shape, a seed inside, and frequencies as weights."""
    b = numpyro.sample("b", dist.Normal(0, 1), sample_shape=(2,))
    with numpyro.plate("rows", x.shape[0]), handlers.scale(scale=1.0 + (x[:, 0] > 0)):
        numpyro.sample("y", dist.Normal(x @ b, 1.0), obs=y)


def weights(g: np.random.Generator) -> Simulated:
    x = g.normal(size=(200, 2))
    return {"x": x, "y": g.normal(x @ [1.0, -1.0], 1)}, {"b": [1.0, -1.0]}


WHOLE = {"whole": True}
EXAMPLES = {
    "eight_schools": Example(schools, WHOLE),
    "divorce": Example(states),
    "lungs": Example(patients),
    "counted_patients": Example(patients, refused="a number of groups is a constant"),
    "baseball": Example(players, WHOLE),
    "logistic": Example(flowers),
    "horseshoe": Example(
        sparse,
        blocks={"kernel": {"name": "nuts", "target_acceptance": 0.99}, "draws": 1500, "warmup": 1000},
        failed="divergences",
    ),
    "gaussian_process": Example(curve, WHOLE, {"compute": {"dtype": "float64"}}),
    "volatility": Example(market, WHOLE),
    "autoregression": Example(series, WHOLE),
    "mixture": Example(clusters),
    "ordinal": Example(grades),
    "fishing": Example(catches),
    "survival": Example(adoptions),
    "splines": Example(hinges),
    "covariance": Example(pairs),
    "fixed_number": Example(sixty, refused="take the number of rows from a field"),
    "weighted": Example(weights),
}
"""Name of the function -> how it is run."""
