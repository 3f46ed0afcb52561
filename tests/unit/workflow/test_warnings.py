"""Each invalid file is named once, and not as a warning where its error ends the command."""

from __future__ import annotations

import sys

import pytest

from bayesmesh.errors import ConfigError
from bayesmesh.workflow.warnings import asked_of_snakemake, warn_of_invalid

SHARED = ConfigError("many.yaml: unknown key 'a'", "remove it")
BROKEN = {
    "many": SHARED,
    "many-a-1": SHARED,
    "two": ConfigError("two.yaml: empty"),
    "three": ConfigError("three.yaml: no"),
}


@pytest.mark.parametrize(
    ("asked", "said"),
    [([], "many two three"), (["good", "two", "three"], "many three"), (["many-a-1"], "two three")],
)
def test_all_but_the_one_that_is_refused_are_named_once(
    asked: list[str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_invalid(BROKEN, asked)
    assert [line.removeprefix("warning: left out: ").partition(".")[0] for line in caplog.messages] == said.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [([], ["a"]), (["-n", "b"], ["b"]), (["results/b/report.html", "c"], ["b"]), (["--cores", "2"], ["a"])],
)
def test_the_words_of_snakemake_name_what_it_makes(
    monkeypatch: pytest.MonkeyPatch, words: list[str], expected: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["snakemake", *words])
    assert asked_of_snakemake({"a", "b"}, ["a"]) == expected
