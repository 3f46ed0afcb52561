"""Write a table of rows in groups with known coefficients, to measure `glm` by.

    python tools/write_groups.py data/many.csv --rows 1000000 --groups 10000

The experiment beside it is `data: {source: table, files: data/many.csv, types: {county: category}}` and
`model: {name: glm, formula: y ~ x + z + (1 | county)}`; the coefficients are 0.8 and -0.4, the deviation of the groups 0.5.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

BLOCK = 100_000
"""Rows that are written at a time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=10_000)
    asked = parser.parse_args()
    chance = np.random.default_rng(1)
    effects, shifts = chance.normal(0, 0.5, asked.groups), chance.normal(size=asked.groups)
    with asked.path.open("w") as file:
        file.write("y,x,z,county\n")
        for start in range(0, asked.rows, BLOCK):
            count = min(BLOCK, asked.rows - start)
            group, x = chance.integers(0, asked.groups, count), chance.normal(size=count)
            z = chance.normal(size=count) + shifts[group]
            y = 1.5 + 0.8 * x - 0.4 * z + effects[group] + chance.normal(size=count)
            rows = zip(y, x, z, group, strict=True)
            file.writelines(f"{a:.6g},{b:.6g},{c:.6g},c{level}\n" for a, b, c, level in rows)


if __name__ == "__main__":
    main()
