"""Write `reference.csv`: closed forms, and long runs of NumPyro on models that are written out for it.

Run it in the environment of `make peers-env`, which has NumPyro and not the package:

    PYTHONPATH=tests .venv-peers/bin/python -m tabular.make_reference [NAME ...]

Standard errors come from means of batches of 100 draws, and from quantiles of batches of 500. A run is kept if R-hat is below 1.005 and hardly a trajectory
diverges.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import jax
import numpy as np
from numpyro.diagnostics import summary
from numpyro.infer import MCMC, NUTS

from tabular.simulated import TABLES, columns_of
from tabular.written_out import CLOSED_FORMS, INNER, MODELS

REFERENCE = Path(__file__).with_name("reference.csv")
FORMATS = {
    "mean": ".8g", "sd": ".6g", "mean_error": ".3g", "sd_error": ".3g",
    "q05": ".6g", "q95": ".6g", "q05_error": ".3g", "q95_error": ".3g",
}  # fmt: skip
"""Column -> format of its numbers; closed forms end before the quantiles."""

NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 4, 1000, 3000


def long_run(name: str) -> dict[str, tuple[float, ...]]:
    """Return the quantities of a table."""
    kernel = NUTS(MODELS[name](columns_of(name)), target_accept_prob=0.95)
    how = {"num_warmup": NUM_WARMUP, "num_samples": NUM_DRAWS, "num_chains": NUM_CHAINS}
    mcmc = MCMC(kernel, **how, chain_method="vectorized", progress_bar=False)
    mcmc.run(jax.random.key(1), extra_fields=("diverging",))
    draws = {k: np.asarray(v) for k, v in mcmc.get_samples(group_by_chain=True).items()}
    draws = {k: v for k, v in draws.items() if k not in INNER and v.ndim == 2}
    worst = max(float(each["r_hat"]) for each in summary(draws).values())
    divergences = int(mcmc.get_extra_fields()["diverging"].sum())
    print(f"{name}: R-hat {worst:.4f}, {divergences} divergences", flush=True)
    if worst > 1.005 or divergences > 20:
        raise SystemExit(f"{name}: not converged")
    return {k: _numbers(v) for k, v in draws.items()}


def _numbers(x: np.ndarray) -> tuple[float, ...]:
    mean, sd = float(x.mean()), float(x.std())
    # The error of a standard deviation is that of the mean square, divided by its derivative.
    return mean, sd, _error(x), _error((x - mean) ** 2) / (2 * sd), *_tails(x)


def _tails(x: np.ndarray) -> tuple[float, ...]:
    """Return the 5% and 95% quantiles and their standard errors."""
    batches = np.quantile(x.reshape(-1, 500), (0.05, 0.95), axis=1)
    errors = batches.std(axis=1, ddof=1) / np.sqrt(batches.shape[1])
    return *np.quantile(x, (0.05, 0.95)).tolist(), *errors.tolist()


def _error(x: np.ndarray) -> float:
    batches = x.reshape(-1, 100).mean(1)
    return float(batches.std(ddof=1) / np.sqrt(len(batches)))


def main() -> None:
    """Find the numbers of the tables that are named, or of all, and write them beside those that are there."""
    kept = list(csv.DictReader(REFERENCE.open())) if REFERENCE.exists() else []
    by_name = {name: [row for row in kept if row["table"] == name] for name in TABLES}
    for name in sys.argv[1:] or TABLES:
        found = CLOSED_FORMS[name](columns_of(name)) if name in CLOSED_FORMS else long_run(name)
        by_name[name] = [
            {"table": name, "quantity": k, **dict(zip(FORMATS, map(format, values, FORMATS.values()), strict=False))}
            for k, values in sorted(found.items())
        ]
        with REFERENCE.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["table", "quantity", *FORMATS], lineterminator="\n")
            writer.writeheader()
            writer.writerows(row for rows in by_name.values() for row in rows)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
