#!/bin/sh
# Run by Snakemake inside the new conda environment, from the working directory; by hand: from the repository's root.
# In the repository, the locks are installed; in a project of one's own, its requirements.txt.
# locks: 3838622232
set -eu
if [ -e envs/cpu.txt ]; then
    python -m pip install --quiet --require-hashes -r envs/build.txt
    python -m pip install --quiet --no-build-isolation --require-hashes -r envs/cpu.txt
    python -m pip install --quiet --no-build-isolation --no-deps -e .
elif [ -e requirements.txt ]; then
    python -m pip install --quiet -r requirements.txt
else
    echo "neither envs/cpu.txt nor requirements.txt is here: run Snakemake from the root of the project" >&2
    exit 1
fi
