"""Groups of a posterior whose chains agree, and how they are written."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bayesmesh.store.arrays import open_group, write_array

CHAINS, DRAWS = 4, 401


def drawn(seed: int, *event: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(CHAINS, DRAWS, *event)).astype(np.float32)


def good_posterior() -> dict[str, dict[str, np.ndarray]]:
    return {
        "summaries": {"log_density": drawn(0), "logits": drawn(1, 3, 2)},
        "posterior": {"weights": drawn(2, 5, 7), "bias": drawn(3)},
        "sample_stats": {
            "energy": drawn(4),
            "diverging": np.zeros((CHAINS, DRAWS), dtype=bool),
            "acceptance_rate": np.full((CHAINS, DRAWS), 0.75, dtype=np.float32),
        },
    }


def write(path: Path, groups: dict[str, dict[str, np.ndarray]]) -> Path:
    root = open_group(path, "w")
    for group_name, arrays in groups.items():
        group = root.create_group(group_name)
        write_array(group, "draw", np.arange(DRAWS), ("draw",))
        for name, values in arrays.items():
            dims = ("chain", "draw", *(f"{name}_dim_{i}" for i in range(values.ndim - 2)))
            write_array(group, name, values, dims)
    return path
