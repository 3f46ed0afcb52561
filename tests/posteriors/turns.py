"""Print what draws in turns save: gradients a draw of all chains, and seconds of the same draws in both ways.

`PYTHONPATH=src:tests:tests/support python -m posteriors.turns [NAME ...]`; a name may be that of `many_rows`. NUTS with default settings; both
programs draw in turns, three times each, from the same warmup.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

NUM_DRAWS, REPEATS, CHAINS = 1000, 3, (4, 16)


def main() -> None:
    import jax
    import numpy as np

    import programs
    from bayesmesh.config.config_blocks import SamplingSettings
    from bayesmesh.sampling.starts import start_chains
    from posteriors import POSTERIORS, many_rows

    jax.config.update("jax_enable_x64", True)
    every = POSTERIORS | {p.name: p for p in vars(many_rows).values() if isinstance(p, type) and hasattr(p, "name")}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    settings = SamplingSettings()
    print("| posterior | chains | a trajectory | waiting | in turns | saved | compile, s | ms a draw | ratio |")
    for name in parser.parse_args().names or every:
        for num_chains in CHAINS:
            case, ways = every[name].case("float32"), {}
            for takes_turns in (False, True):
                begun = time.process_time()
                built = programs.build(
                    case, "nuts", num_chains=num_chains, num_warmup=settings.warmup, most_draws=500,
                    row_tile=case.spec.num_rows, initial=settings.initial.model_dump(), takes_turns=takes_turns,
                )  # fmt: skip
                ways[takes_turns] = (built, time.process_time() - begun)
            arguments, how = built.arguments(3), (settings.initial.method, built.program.num_together)
            state = start_chains(built.compiled["initialise"], arguments, built.data, jax.block_until_ready, *how)
            warm, _, _ = built.go(arguments, state, 0, settings.warmup)
            seconds: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(REPEATS):
                for takes_turns, (each, _) in ways.items():
                    begun = time.perf_counter()
                    _, found, _ = each.go(arguments, warm, settings.warmup, NUM_DRAWS)
                    seconds[takes_turns].append(time.perf_counter() - begun)
            lengths = np.asarray(found["n_steps"])
            waiting = lengths.max(axis=1).sum()
            turns = sum(gradients_in_turns(part) for part in (lengths[:500], lengths[500:]))
            took = {k: statistics.median(v) for k, v in seconds.items()}
            print(
                f"| {name} | {num_chains} | {lengths.mean():.1f} | {waiting / NUM_DRAWS:.1f} | {turns / NUM_DRAWS:.1f} |"
                f" {1 - turns / waiting:.0%} | {ways[False][1]:.1f}, {ways[True][1]:.1f} |"
                f" {1e3 * took[False] / NUM_DRAWS:.2f}, {1e3 * took[True] / NUM_DRAWS:.2f} | {took[True] / took[False]:.2f} |",
                flush=True,
            )


def gradients_in_turns(lengths: Any) -> int:
    """Play the schedule of `chain_turns` for lengths of transitions, (draw, chain); return the gradients of all chains."""
    import numpy as np

    num_draws, num_chains = lengths.shape
    made, left, total = np.zeros(num_chains, int), np.array(lengths[0]), 0
    while (made < num_draws).any():
        has_next = made + 1 < num_draws
        enough = max(1, -(-int(has_next.sum()) // 2))
        while (left > 0).any() and ((left == 0) & has_next).sum() < enough:
            left, total = np.maximum(left - 1, 0), total + 1
        ends = (left == 0) & (made < num_draws)
        made = made + ends
        for chain in np.flatnonzero(ends & (made < num_draws)):
            left[chain] = lengths[made[chain], chain]
    return total


if __name__ == "__main__":
    main()
