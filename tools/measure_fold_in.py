"""Time the fold-in and ranking of users whom the chains have not seen: `python tools/measure_fold_in.py RESULTS [USERS]`.

RESULTS is the folder of results of a finished `movielens`. Users are taken from its watch matrix, evenly by row, with a fifth of each one's
films hidden. That the chains have seen them changes no time. Prints wall and processor seconds of 50 draws of the films.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from bayesmesh.analyses.fold_in.fold_in_draws import read_factors
from bayesmesh.analyses.recommendation.new_user_recommendation import score_unseen
from bayesmesh.data.shards import Shards
from bayesmesh.data.split import UnseenUsers, hold_out_interactions
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.posterior_reader import open_posterior

NUM_DRAWS, FRACTION, CUTOFF, PRIOR_SCALE = 50, 0.2, 20, 1.0


def main() -> None:
    results, num_users = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    (shards_path,) = (results / "data").glob("movielens*/*/shards.zarr")
    watched = np.concatenate([block["watched"] for block in Shards(shards_path).blocks()])
    users = np.linspace(0, len(watched) - 1, num_users).astype(int)
    given, hidden = hold_out_interactions(watched[users], FRACTION, 0)
    unseen = UnseenUsers(users, given, hidden)
    begun = time.perf_counter(), time.process_time()
    draws = read_factors(open_posterior(ExperimentLayout(results, "movielens").posterior), None, NUM_DRAWS)
    found = score_unseen(draws, unseen, PRIOR_SCALE, watched.sum(axis=0, dtype=np.int64), len(watched), CUTOFF)
    wall, processor = time.perf_counter() - begun[0], time.process_time() - begun[1]
    low, middle = np.quantile(found.acceptance, (0.05, 0.5))
    print(f"{num_users} users, {draws.num_draws} draws: {wall:.1f} s, {processor:.1f} s of processor time")
    print(f"accepted proposals: median {middle:.2f}, 5% of users below {low:.2f}")


if __name__ == "__main__":
    main()
