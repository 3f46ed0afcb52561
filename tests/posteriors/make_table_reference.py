"""Write `tables.csv`: closed forms, and long runs of NumPyro on models that are written out for it.

Run it in the environment of `make peers-env`, which has NumPyro and not the package:

    PYTHONPATH=tests/posteriors .venv-peers/bin/python tests/posteriors/make_table_reference.py [NAME ...]

Standard errors come from means of batches of 100 draws. A run is kept if R-hat is below 1.005 and hardly a trajectory
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
from simulated_tables import TABLES, columns_of
from written_out import CLOSED_FORMS, INNER, MODELS, Numbers

REFERENCE = Path(__file__).with_name("tables.csv")
NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 4, 1000, 3000


def long_run(name: str) -> dict[str, Numbers]:
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


def _numbers(x: np.ndarray) -> Numbers:
    mean, sd = float(x.mean()), float(x.std())
    # The error of a standard deviation is that of the mean square, divided by its derivative.
    return mean, sd, _error(x), _error((x - mean) ** 2) / (2 * sd)


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
            {"table": name, "quantity": k, "mean": f"{m:.8g}", "sd": f"{s:.6g}", "mean_error": f"{e:.3g}", "sd_error": f"{f:.3g}"}
            for k, (m, s, e, f) in sorted(found.items())
        ]  # fmt: skip
        with REFERENCE.open("w", newline="") as file:
            keys = ["table", "quantity", "mean", "sd", "mean_error", "sd_error"]
            writer = csv.DictWriter(file, keys, lineterminator="\n")
            writer.writeheader()
            writer.writerows(row for rows in by_name.values() for row in rows)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
