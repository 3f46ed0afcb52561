"""Print the table of all posteriors with default settings: `PYTHONPATH=src:tests python -m posteriors [--chains 4 --kernel nuts] [NAME ...]`."""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("JAX_ENABLE_X64", "true")
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def main() -> None:
    from posteriors import POSTERIORS
    from posteriors.judging import judge, sample

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--kernel", default="nuts")
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args()
    for name in given.names or POSTERIORS:
        begun = time.perf_counter()
        built, run = sample(name, given.kernel, given.chains, given.seed, given.dtype)
        found = judge(name, built, run)
        print(
            f"| {name} | {given.kernel} {given.chains} | {found.verdict} | {'right' if found.is_right else 'wrong'} |"
            f" {found.mean_error:.1f} | {found.sd_error:.2f} | {found.gradients} | {time.perf_counter() - begun:.0f} s |"
            f" {'; '.join(found.missed)[:300]} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
