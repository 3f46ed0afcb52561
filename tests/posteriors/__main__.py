"""Print the tables of all posteriors and of all simulated tables with default settings.

`PYTHONPATH=src:tests:tests/support python -m posteriors [--chains 4 --kernel nuts] [NAME ...]`; chains and kernel are those of posteriors.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")


def main() -> None:
    import jax

    # The package above this module has imported JAX, so its variable comes too late.
    jax.config.update("jax_enable_x64", True)
    from posteriors import POSTERIORS
    from posteriors.judging import judge, sample
    from tabular.simulated import TABLES

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a posterior or a table; all without names")
    parser.add_argument("--kernel", default="nuts")
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args()
    if unknown := {*given.names} - {*POSTERIORS, *TABLES}:
        parser.error(f"no posterior or table is called {', '.join(sorted(unknown))}")
    # A posterior and a table may have the same name.
    for name in dict.fromkeys(given.names or (*POSTERIORS, *TABLES)):
        begun = time.perf_counter()
        if name in TABLES:
            print_table(name, given.seed, given.dtype)
        if name not in POSTERIORS:
            continue
        found = judge(name, sample(name, given.kernel, given.chains, given.seed, given.dtype))
        print(
            f"| {name} | {given.kernel} {given.chains} | {found.verdict} | {'right' if found.is_right else 'wrong'} |"
            f" {found.mean_error:.1f} | {found.sd_error:.2f} | {found.gradients} | {time.perf_counter() - begun:.0f} s |"
            f" {'; '.join(found.missed)[:300]} |",
            flush=True,
        )


def print_table(name: str, seed: int, dtype: str) -> None:
    """Sample a table and print its line: verdict, largest errors in standard errors, R-hat, effective draws, gradients, seconds of processor."""
    from posteriors.judging import assess, gradients_of_a_chain
    from tabular.runs import compare, reference, sample_table
    from tabular.simulated import TABLES

    begun = time.process_time()
    draws, run = sample_table(name, dtype, seed)
    verdict, missed, _ = assess(run)
    found = compare(draws, reference()[name])
    numbers = f"{found.mean_z[0]:.1f} ({found.mean_z[1]}) | {found.sd_z[0]:.1f} ({found.sd_z[1]}) | {found.r_hat:.3f} | {found.ess:.0f}"
    print(
        f"| {name} | {TABLES[name].model} | {verdict} | {'right' if found.is_right else 'wrong'} | {numbers} | {gradients_of_a_chain(run)} |"
        f" {time.process_time() - begun:.0f} s | {'; '.join(missed)[:300]} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
