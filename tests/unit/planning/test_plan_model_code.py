"""What later stages alone need of a model is left out, and nothing that draws may depend on."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.config.config_registry import component_path, list_components
from bayesmesh.config.config_source_code import PACKAGE_ROOT, source_closure
from bayesmesh.planning.plan_model_code import LATER, digest_without

MODEL = """
from bayesmesh.models.base import Model
from .parts import Link, scale


class Own(Model):
    pretty_name = "Own"
    offers = ()

    def prior(self, data_spec):
        return _normal(data_spec)

    def log_likelihood(self, latents, rows):
        return self.mean(latents) - rows["x"]

    def mean(self, latents):
        return latents["a"] * scale()

    def predict(self, latents, inputs):
        return _draw(latents)

    def outcome(self, rows):
        return rows["x"]

    def summaries(self, latents, rows):
        return {"a": _shown(latents)}


def _normal(data_spec):
    return data_spec


def _draw(latents):
    return _cut(latents)


def _cut(latents):
    return latents


def _shown(latents):
    return latents


def _unused():
    return 0
"""

PARTS = """
class Link:
    def __call__(self, x):
        return x


def scale():
    return 2
"""


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A function of changes (old text, new text) of the two files to the digests of both."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/__init__.py").touch()

    def digest(*changes: tuple[str, str], members: frozenset[str] = LATER) -> list[str]:
        texts = {"model": MODEL, "parts": PARTS}
        for old, new in changes:
            assert any(old in text for text in texts.values()), old
            texts = {name: text.replace(old, new) for name, text in texts.items()}
        for name, text in texts.items():
            (tmp_path / f"own/{name}.py").write_text(text)
        files = [tmp_path / f"own/{name}.py" for name in texts]
        return sorted(
            digest_without(
                [*files, *(PACKAGE_ROOT / "models" / name for name in ("base.py", "_gpu_model.py", "_unit_model.py"))],
                members,
            ).values()
        )

    return digest


@pytest.mark.parametrize(
    "change",
    [
        ('{"a": _shown(latents)}', '{"b": _shown(latents)}'),
        ("return _draw(latents)", "return _draw(2 * latents)"),
        (
            '    def outcome(self, rows):\n        return rows["x"]',
            '    def outcome(self, rows):\n        return rows["y"]',
        ),
        ('pretty_name = "Own"', 'pretty_name = "Other"'),
        ("offers = ()", 'offers = ("averaging",)'),
        ("def _shown(latents):\n    return latents", "def _shown(latents):\n    return 2 * latents"),
        ("def _cut(latents):\n    return latents", "def _cut(latents):\n    return 2 * latents"),
        ("_cut", "_other_name"),
    ],
    ids=str,
)
def test_what_only_later_stages_need_is_left_out(digest: object, change: tuple[str, str]) -> None:
    assert digest(change) == digest()


@pytest.mark.parametrize(
    "changes",
    [
        [('latents["a"] * scale()', 'latents["a"]')],
        [("return data_spec", "return 2")],
        [("return 2", "return 3")],
        [("def _unused():\n    return 0", "def _unused():\n    return 1")],
        [("return x", "return 2 * x")],
        # A method that the likelihood comes to need.
        [("return self.mean(latents)", "return self.predict(latents, rows)")],
    ],
    ids=str,
)
def test_everything_else_stays(digest: object, changes: list[tuple[str, str]]) -> None:
    assert digest(*changes) != digest()


@pytest.mark.parametrize(
    "reference",
    [
        ("return self.mean(latents)", "return self.predict(latents, rows)"),
        ("return self.mean(latents)", "return self.outcome(rows) + self.predict(latents, rows)"),
        ("return self.mean(latents)", 'return getattr(self, "predict")(latents, rows)'),
        ("return self.mean(latents)", "return Own.predict(self, latents, rows)"),
        # Through a function, in another file, and in a file that another way of import runs.
        ("return data_spec", "return data_spec.predict()"),
        ("    def __call__(self, x):\n        return x", "    def __call__(self, x):\n        return x.predict(x)"),
        # A function that something else may find refers to it.
        ("def _unused():\n    return 0", "def _unused():\n    return Own.predict"),
        # Another package may call the methods of its own classes.
        ("class Own(Model)", "class Own(Model, package.Estimator)"),
        (
            "return latents\n\n\ndef _shown",
            "return latents\n\n\n@register\ndef _kept():\n    Own.predict\n\n\ndef _shown",
        ),
    ],
    ids=str,
)
def test_a_method_stays_if_what_stays_refers_to_it(digest: object, reference: tuple[str, str]) -> None:
    before = digest(reference)
    assert digest(reference, ("return _draw(latents)", "return _draw(2)")) != before
    assert digest(reference, ("def _cut(latents):\n    return latents", "def _cut(latents):\n    return 2")) != before


@pytest.mark.parametrize("use", ["getattr(self, name)", "globals()[name]", "eval(name)", "operator.methodcaller(name)"])
def test_nothing_is_left_out_where_names_are_computed(digest: object, use: str) -> None:
    dynamic = ("return self.mean(latents)", f'name = "pre" + "dict"; return {use}')
    before = digest(dynamic)
    for change in [
        ("return _draw(latents)", "return _draw(2)"),
        ("_shown(latents)}", "_shown(2)}"),
        ("return _cut(latents)", "return _cut(2)"),
    ]:
        assert digest(dynamic, change) != before


def test_what_a_stopping_rule_monitors_stays(digest: object) -> None:
    members = LATER - {"summaries"}
    change = ('{"a": _shown(latents)}', '{"b": _shown(latents)}')
    assert digest(change, members=members) != digest(members=members)
    assert digest(("return _draw(latents)", "return _draw(2)"), members=members) == digest(members=members)


@pytest.mark.parametrize("name", list_components("model"))
def test_an_edit_of_the_summaries_of_a_shipped_model_changes_nothing(name: str, tmp_path: Path) -> None:
    path = component_path("model", name)
    files = [*source_closure([path]), copy := tmp_path / path.name]
    before = []
    for text in (path.read_text(), path.read_text() + "\nX = 1\n", path.read_text().replace('"""Return', '"""Give')):
        copy.write_text(text)
        before.append(digest_without(files)[copy])
    assert before[0] == before[2] != before[1]
    head, _, body = path.read_text().partition("    def summaries(")
    copy.write_text(f"{head}    def summaries({body.replace('return ', 'return rows and ', 1)}")
    assert digest_without(files)[copy] == before[0]


def test_code_other_than_that_of_models_is_not_looked_at() -> None:
    files = [PACKAGE_ROOT / "models/base.py", PACKAGE_ROOT / "sampling/sampling_summaries.py"]
    assert [path.name for path in digest_without(files)] == ["base.py"]
