"""Name the nearest experiment for a target that looks like one; Snakemake says only that no rule produces it."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from bayesmesh.config.settings import NAME_PATTERN

_ALIKE = 0.7
"""Similarity above which a word is taken for a mistyped name; words of the command line may also be values of options."""


def name_unknown_targets(words: Sequence[str], names: Collection[str]) -> None:
    """Print a note for each word that resembles the name of an experiment, or is its file.

    It is only a note, because rules of a Snakefile that includes the workflow may follow, and Snakemake knows its targets
    only after it has read them all.

    Args:
        words: of Snakemake's command line.
        names: of experiments, sweeps and rules.
    """
    for word in words:
        is_file = word.endswith((".yaml", ".yml"))
        if word in names or not (is_file or re.fullmatch(NAME_PATTERN, word, re.IGNORECASE)):
            continue
        # The name is that of the experiment's file, without folder and ending.
        nearest = difflib.get_close_matches(Path(word).stem.lower(), names, n=1, cutoff=_ALIKE)
        if nearest:
            print(f"note: no experiment, sweep or rule '{word}'; did you mean '{nearest[0]}'?", file=sys.stderr)
