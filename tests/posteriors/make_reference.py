"""Write `reference.csv`: closed forms, and long runs of NumPyro's No-U-Turn sampler in float64 for all others.

Run it with the environment of `make peers-env`, which has NumPyro:

    PYTHONPATH=src:tests:tests/support:.venv/lib/python3.12/site-packages .venv-peers/bin/python -m posteriors.make_reference [NAME ...]

NumPyro gets the model's own log density in unconstrained space; its sampler, adaptation, starts and random numbers share
nothing with Bayesmesh. A run is kept if R-hat is below 1.005 and no trajectory diverges.
"""

from __future__ import annotations

import csv
import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 4, 2000, 5000


def closed_forms() -> dict[str, dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """Return posterior -> summary -> means, standard deviations, and no errors, where formulas give them."""
    from posteriors import POSTERIORS
    from posteriors.shapes import IllConditioned

    factor = IllConditioned.factor()
    known = {name: _linear(POSTERIORS[name].rows()) for name in ("linear", "linear, unscaled")}
    known["ill-conditioned normal"] = {"x": (np.zeros(100), np.linalg.norm(factor, axis=1))}
    known["funnel"] = {"v": (np.zeros(1), np.full(1, 3.0))}
    known["beta-binomial"] = _beta_binomial(POSTERIORS["beta-binomial"].rows())
    return {name: {k: (mean, sd, 0 * mean) for k, (mean, sd) in each.items()} for name, each in known.items()}


def _linear(rows: dict[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the moments under a flat prior of coefficients and noise: given both, noise^2 is inverse gamma."""
    design = np.concatenate([np.ones((len(rows["y"]), 1)), rows["x"]], axis=1)
    best, (residual,), *_ = np.linalg.lstsq(design, rows["y"], rcond=None)
    shape, rate = (len(design) - design.shape[1] - 1) / 2, residual / 2
    variance = rate / (shape - 1)
    sd = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    noise = math.sqrt(rate) * math.exp(math.lgamma(shape - 0.5) - math.lgamma(shape))
    return {
        "intercept": (best[:1], sd[:1]),
        "slope": (best[1:], sd[1:]),
        "noise": (np.array([noise]), np.array([math.sqrt(variance - noise**2)])),
    }


def _beta_binomial(rows: dict[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the moments by the trapezoidal rule, where both ends of either axis have no mass to speak of."""
    rate, concentration = np.meshgrid(np.linspace(0.05, 0.3, 501), np.geomspace(2, 600, 801), indexing="ij")
    # The half-normal prior, and the Jacobian of the logarithmic axis; the prior of the rate is flat.
    log_density = np.log(concentration) - (concentration / 100) ** 2 / 2
    for y, size in zip(rows["y"], rows["size"], strict=True):
        one, other = rate * concentration, (1 - rate) * concentration
        log_density += scipy.special.betaln(y + one, size - y + other) - scipy.special.betaln(one, other)
    weight = np.exp(log_density - log_density.max())
    edges = np.concatenate([weight[[0, -1]].ravel(), weight[:, [0, -1]].ravel()])
    if edges.max() > 1e-9:
        raise SystemExit(f"beta-binomial: the grid ends at {edges.max():.1e} of the highest density")

    def moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = np.average(values, weights=weight)
        return np.array([mean]), np.array([math.sqrt(np.average((values - mean) ** 2, weights=weight))])

    return {"rate": moments(rate), "concentration": moments(concentration)}


def long_run(name: str) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return summary -> means, standard deviations and standard errors of a long run.

    Raises:
        SystemExit: it has not converged.
    """
    from numpyro.infer import MCMC, NUTS

    from bayesmesh.diagnostics.convergence import convergence_table
    from posteriors import POSTERIORS

    case = POSTERIORS[name].case("float64")
    model, rows = case.model, {k: jnp.asarray(v) for k, v in case.rows.items()}
    prior = model.prior(case.spec)
    bijector = prior.experimental_default_event_space_bijector()

    def potential(z: dict[str, jax.Array]) -> jax.Array:
        latents = bijector.forward(z)
        log_prior = prior.log_prob(latents) + bijector.forward_log_det_jacobian(z)
        return -(log_prior + model.log_likelihood(latents, rows).sum())

    # Near the mode: wide priors, and other modes, are not what is tested of NumPyro.
    start = _climb(potential, dict(bijector.inverse(prior.sample(seed=jax.random.key(0)))))
    begin = jax.tree.map(
        lambda x: x[None] + 0.01 * jnp.asarray(np.random.default_rng(0).normal(size=(NUM_CHAINS, *x.shape))), start
    )
    kernel = NUTS(potential_fn=potential, target_accept_prob=0.9)
    mcmc = MCMC(
        kernel,
        num_warmup=NUM_WARMUP,
        num_samples=NUM_DRAWS,
        num_chains=NUM_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(1), init_params=begin, extra_fields=("diverging",))
    draws = jax.vmap(jax.vmap(lambda z: dict(bijector.forward(z))))(mcmc.get_samples(group_by_chain=True))
    found, worst = {}, 0.0
    for summary, values in draws.items():
        table = convergence_table(np.asarray(values).reshape(NUM_CHAINS, NUM_DRAWS, -1))
        worst = max(worst, float(table["r_hat"].max()))
        found[summary] = (table["mean"], table["sd"], table["mcse_mean"])
    divergences = int(mcmc.get_extra_fields()["diverging"].sum())
    print(f"{name}: R-hat {worst:.4f}, {divergences} divergences", flush=True)
    if worst > 1.005 or divergences:
        raise SystemExit(f"{name}: not converged")
    return found


def _climb(potential, start):
    """Return a point near a mode: Adam from the origin, in unconstrained space."""
    at = jax.tree.map(jnp.zeros_like, start)
    first = second = at

    def step(i, carry):
        at, first, second = carry
        g = jax.tree.map(lambda x: jnp.nan_to_num(x), jax.grad(potential)(at))
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, g)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, second, g)
        rate = 0.1 * (1 - i / 3000)
        at = jax.tree.map(
            lambda x, m, v: x - rate * (m / (1 - 0.9 ** (i + 1))) / (jnp.sqrt(v / (1 - 0.999 ** (i + 1))) + 1e-8),
            at,
            first,
            second,
        )
        return at, first, second

    return jax.jit(lambda c: jax.lax.fori_loop(0, 300, step, c))((at, first, second))[0]


def main() -> None:
    """Find the numbers of the posteriors that are named, or of all, and write them beside those that are there."""
    from posteriors import POSTERIORS
    from posteriors.judging import REFERENCE

    wanted = sys.argv[1:] or list(POSTERIORS)
    kept = list(csv.DictReader(REFERENCE.open())) if REFERENCE.exists() else []
    by_name = {name: [row for row in kept if row["posterior"] == name] for name in POSTERIORS}
    known = closed_forms()
    for name in wanted:
        # The non-centred form has the same posterior of mean and spread, without the funnel.
        found = known[name] if name in known else long_run(name.replace(", centred", ", non-centred"))
        if name == "eight schools, centred":
            del found["standardised"]
        by_name[name] = [
            {
                "posterior": name,
                "summary": summary,
                "index": i,
                "mean": f"{m:.6g}",
                "sd": f"{s:.6g}",
                "mcse": f"{e:.3g}",
            }
            for summary, numbers in sorted(found.items())
            for i, (m, s, e) in enumerate(zip(*numbers, strict=True))
        ]
        with REFERENCE.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["posterior", "summary", "index", "mean", "sd", "mcse"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(row for rows in by_name.values() for row in rows)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
