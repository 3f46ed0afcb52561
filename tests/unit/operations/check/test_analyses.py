"""The verb `check` for analyses: what breaks a contract is seen, and named in words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import pytest

from bayesmesh.cli import main
from bayesmesh.config.registry import forget_files
from bayesmesh.operations.check import analyses as analysis_checks

TEMPLATE = Path(__file__).parents[4] / "src/bayesmesh/operations/scaffold/templates/analysis.py"
GOOD = TEMPLATE.read_text().replace("NewAnalysis", "Moments")
WRITE = 'write_text(files["moments.csv"], table.to_csv(index=False))'


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Return a function that writes a module, checks its class, and gives the exit code and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bayesmesh.sampling.density.mesh.configure_jax", lambda *_: None)
    jax.config.update("jax_enable_x64", True)
    number = iter(range(100))

    def run(text: str, *words: str) -> tuple[int, str]:
        # Another name each time, because modules are remembered.
        module = f"own_analysis_{tmp_path.name[-12:]}_{next(number)}"
        (tmp_path / f"{module}.py").write_text(text)
        forget_files()
        code = main(["check", f"{module}:Moments", *words])
        said = capfd.readouterr()
        return code, said.out + said.err

    return run


def test_the_template_passes_all_checks(check: Any) -> None:
    code, said = check(GOOD)
    assert code == 0, said
    assert "on draws from the prior of model 'gaussian' with data of source 'gaussian'" in said
    assert [line.split()[:2] for line in said.splitlines()[1:-1]] == [
        ["ok", f"{name}:"] for name in ("declarations", "check", *analysis_checks.CHECKS)
    ]


FAULTS: list[tuple[str, str, str, str, str]] = [
    ("declarations", "", "\n\nMoments.reads = ('verdict',)\n", "`reads` is ('verdict',), and the text of the class says ('posterior',)", "write it out"),
    ("declarations", ', description="Latents that the page shows."', "", "option 'num_shown' has no description", "the table of keys"),
    ("check", "    def run(", "    def check(self, bound, latents):\n        float(latents['mean'])\n\n    def run(", "ShapeDtypeStruct", "correct the line"),
    ("run", WRITE, "raise RuntimeError('no')", "RuntimeError: no", "docs/contracts"),
    ("outputs", WRITE, "pass", "moments.csv is not written", "remove it from `outputs`"),
    ("outputs", WRITE, f"{WRITE}\n        files['moments.csv'].with_name('more.csv').touch()", "more.csv is written, and not declared", "add it to `outputs`"),
    ("outputs", 'return f"{len(table)} latents"', "return None", "`run` returns None", "one line of text"),
    ("atomic", WRITE, 'files["moments.csv"].write_text(table.to_csv(index=False))', "moments.csv is written in place", "atomic_path"),
    ("again", WRITE, 'write_text(files["moments.csv"], str(np.random.default_rng().random()))', "moments.csv differs", "a seed among the options"),
    ("section", "return Section(html_table(", 'return Section(type(html_table(table, ""))("<h2>") + html_table(', "the section holds <h2>", "begin with <h3>"),
    ("section", "return Section(html_table(", "return str(html_table(", "`section` returns str", "return a Section"),
    ("cell", "    def section(", "    def cell(self, files):\n        return 3\n\n    def section(", "`cell` returns 3", "a few words"),
    ("imports", "import numpy as np\n", "import jax\nimport numpy as np\n", "imports jax", "inside of `run` and `check`"),
    ("memory", "for block in posterior.blocks([latent]):", "for block in list(posterior.blocks([latent])):", "MiB more than 131104", "keep sums"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "old", "new", "said", "remedy"), FAULTS, ids=[f"{e[0]}: {e[3]}" for e in FAULTS])
def test_a_breach_is_seen_and_named(
    check: Any, monkeypatch: pytest.MonkeyPatch, line: str, old: str, new: str, said: str, remedy: str
) -> None:
    assert old in GOOD
    monkeypatch.setattr(analysis_checks, "CHECKS", {k: v for k, v in analysis_checks.CHECKS.items() if k == line})
    code, found = check(GOOD.replace(old, new, 1) if old else GOOD + new)
    assert code == 1, found
    (failed,) = re.findall(r"FAILS     (.*)\n          remedy: (.*)", found)
    assert failed[0].startswith(f"{line}: ")
    assert said in failed[0]
    assert remedy in failed[1]
