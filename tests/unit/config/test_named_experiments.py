"""Experiments that analyses name are there, once, and never in a circle."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bayesmesh.config.named_experiments import check_named
from bayesmesh.errors import ConfigError


def experiments(**named: list[str]) -> dict[str, Any]:
    """Experiments whose analysis `comparison` names others; one that names none does not ask for it."""
    return {
        name: SimpleNamespace(
            analyses=lambda others=others: {"comparison": None} if others else {},
            named_experiments=lambda analysis, others=others: tuple(others),
        )
        for name, others in named.items()
    }


def check(**named: list[str]) -> None:
    check_named({name: Path(f"{name}.yaml") for name in named}, experiments(**named))


def test_what_is_there_is_accepted() -> None:
    check(a=["b", "c"], b=[], c=["b"])


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
