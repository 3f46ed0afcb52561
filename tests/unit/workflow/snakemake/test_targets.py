"""A word that resembles an experiment is answered with the nearest name."""

from __future__ import annotations

import pytest

from bayesmesh.workflow.snakemake.targets import name_unknown_targets


@pytest.mark.parametrize("word", ["flims", "Films", "films.yaml", "config/experiments/films.yaml"])
def test_an_unknown_name_is_answered_with_the_nearest(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    name_unknown_targets(["-n", word], ["digits", "films"])
    assert capsys.readouterr().err == f"note: no experiment, sweep or rule '{word}'; did you mean 'films'?\n"


def test_other_words_are_left_to_snakemake(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--cores", "all", "films", "results/films/report.html", "Makefile", "-efilms", "slurm"]
    name_unknown_targets(words, ["digits", "films"])
    assert capsys.readouterr().err == ""
