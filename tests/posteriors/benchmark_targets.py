"""Print whether runs with default settings pass and are right on the targets of the benchmark `convergence`.

`PYTHONPATH=src:tests:tests/support python -m posteriors.benchmark_targets [NAME ...]`; German credit needs `BAYESMESH_MIRROR`. A run passes
with R-hat below 1.01 and a bulk effective sample size above 400 for every number of every latent, and is right if it meets
the known moments as in the benchmark. No setting of a sampler was chosen by these targets but that of German credit.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

NUM_DRAWS, SECONDS = 1000, 600.0
RUNS = (("nuts", 4), ("chees", 32))
"""Kernels with their numbers of chains."""


def main() -> None:
    from bayesmesh_reproduction.benchmarks.convergence.our_samplers import Ours
    from bayesmesh_reproduction.benchmarks.convergence.runs import assess
    from bayesmesh_reproduction.benchmarks.convergence.targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seed", type=int, default=11)
    given = parser.parse_args()
    for name in given.names or TARGETS:
        for kernel, chains in RUNS:
            sampler = Ours(kernel, chains, SECONDS, NUM_DRAWS)
            sampler.prepare({"target": name})
            gradients = sampler.warm_up(given.seed)
            drawn = sampler.draw(NUM_DRAWS)
            found = assess(drawn.draws, sampler.known)
            known = "no reference" if found.error != found.error else "right" if found.error < 1 else "wrong"
            print(
                f"| {name} | {kernel} {chains} | {'pass' if found.has_converged else 'fail'} | {known} | {found.r_hat:.4f} |"
                f" {found.ess:.0f} | {found.error:.2f} | {(gradients + drawn.gradients) / chains:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
