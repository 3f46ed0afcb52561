"""Experiments side by side: those that analyses name, and those whose file is wrong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bayesmesh.config.loading import check_named, load_configuration
from bayesmesh.errors import ConfigError


def experiments(**named: list[str]) -> dict[str, Any]:
    """Experiments whose analysis `comparison` names others; one that names none does not ask for it."""
    return {
        name: SimpleNamespace(
            requested_analyses=lambda others=others: {"comparison": None} if others else {},
            named_experiments=lambda analysis, others=others: tuple(others),
        )
        for name, others in named.items()
    }


def check(**named: list[str]) -> None:
    for name in named:
        check_named(Path(f"{name}.yaml"), name, experiments(**named), {})


@pytest.mark.parametrize(
    ("named", "said", "remedy"),
    [
        ({"a": ["bb"], "b": []}, r"a\.yaml: key 'comparison\.experiments': no experiment 'bb'", "did you mean 'b'"),
        ({"a": ["b", "b"], "b": []}, "'b' is named twice", "once"),
        ({"a": ["a"]}, "the request is circular: a -> a", "name only others"),
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, "the request is circular: a -> b -> c -> a", "name only others"),
    ],
)
def test_what_cannot_be_is_refused_with_file_and_key(named: dict[str, list[str]], said: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        check(**named)
    assert remedy in caught.value.remedy


def test_a_circle_is_told_to_those_who_are_in_it() -> None:
    with pytest.raises(ConfigError, match=r"^b\.yaml: .*circular: b -> c -> b"):
        check(a=["b"], b=["c"], c=["b"])


def test_what_names_an_invalid_experiment_is_not_valid_either() -> None:
    broken = {"b": ConfigError("b.yaml: unknown key 'x'", "valid: y")}
    with pytest.raises(
        ConfigError, match=r"a\.yaml: key 'comparison\.experiments': 'b' is not valid: b\.yaml: unknown"
    ):
        check_named(Path("a.yaml"), "a", experiments(a=["b"]), broken)


@pytest.fixture
def folder(tmp_path: Path, good: str) -> Path:
    """A configuration with a good experiment, one with a wrong key, and one of the wrong name."""
    (tmp_path / "experiments").mkdir()
    (tmp_path / "config.yaml").write_text("experiments: [one]\n")
    (tmp_path / "experiments" / "one.yaml").write_text(good)
    (tmp_path / "experiments" / "two.yaml").write_text(good + "smapling: {}\n")
    (tmp_path / "experiments" / "three.yml").write_text(good)
    return tmp_path


def test_an_invalid_file_leaves_the_others_as_they_are(folder: Path) -> None:
    found = load_configuration(folder)
    assert list(found.experiments) == ["one"]
    assert {name: error.message for name, error in found.broken.items()} == {
        "two": f"{folder}/experiments/two.yaml: unknown key 'smapling'",
        "three": f"{folder}/experiments/three.yml: an experiment is a file NAME.yaml; this one would be ignored",
    }
