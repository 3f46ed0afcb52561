#!/bin/sh
# Run by Snakemake inside the new conda environment, from the working directory; by hand: from the repository's root.
# locks: 3142486427
set -eu
if [ ! -e envs/cpu.txt ]; then
    echo "envs/cpu.txt is not here: run Snakemake from the root of the Bayesmesh repository" >&2
    exit 1
fi
python -m pip install --quiet --require-hashes -r envs/build.txt
python -m pip install --quiet --no-build-isolation --require-hashes -r envs/cpu.txt
python -m pip install --quiet --no-build-isolation --no-deps -e .
