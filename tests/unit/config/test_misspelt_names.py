"""A name that is nearly one of a contract is refused: what it was meant for would keep its default unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.config.registry import PACKAGES, load_component
from bayesmesh.errors import ConfigError

WRONG = [
    ("kernel", "is_ajusted = False", "is_adjusted"),
    ("model", "local_latent = {}", "local_latents"),
    ("source", "offer = ()", "offers"),
    ("analysis", "needs_of_modell = ('averaging',)", "needs_of_model"),
]
METHODS = [
    ("analysis", "def sections(self): ...", "section"),
    ("kernel", "def restarts(self): ...", "restart"),
    ("model", "def descibed(self): ...", "described"),
]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):
    """A function of a kind and a line that loads a class of this kind with the line in its body."""
    module = f"traits_{abs(hash(request.node.name))}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def run(kind: str, line: str) -> type:
        base = f"bayesmesh.{PACKAGES[kind].partition('/')[0]}.base"
        text = f"from {base} import {kind.capitalize()} as Base\n\n\nclass Mine(Base):\n    {line}\n"
        (tmp_path / f"{module}.py").write_text(text)
        return load_component(kind, f"{module}:Mine")

    return run


@pytest.mark.parametrize(("kind", "line", "meant"), WRONG)
def test_a_misspelt_trait_is_refused_with_file_and_remedy(load, kind: str, line: str, meant: str) -> None:
    name = line.split()[0]
    with pytest.raises(
        ConfigError,
        match=rf"traits_\d+\.py: Mine: '{name}' is not a trait of {kind.capitalize()}\n  remedy: write {meant},",
    ):
        load(kind, line)


@pytest.mark.parametrize(("kind", "line", "meant"), METHODS)
def test_a_misspelt_method_that_has_a_default_is_refused(load, kind: str, line: str, meant: str) -> None:
    """One without a default is missed anyway."""
    name = line.split()[1].partition("(")[0]
    with pytest.raises(
        ConfigError, match=rf"Mine: '{name}' is not a method of {kind.capitalize()}\n  remedy: write {meant},"
    ):
        load(kind, line)
