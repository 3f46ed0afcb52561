"""The verb `check` for sources and kernels: what breaks a contract is seen, and named in words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import pytest

from bayesmesh.cli import main
from bayesmesh.config.registry import forget_files

SOURCE = """
from pathlib import Path
import numpy as np
from pydantic import Field
from bayesmesh.config.settings import Settings
from bayesmesh.data.base import Dataset, Source, Variable

class Options(Settings):
    num_rows: int = Field(9, ge=1, le=100, description="Rows.")

class Mine(Source):
    '''Numbers.'''

    pretty_name = "Mine"
    offers = ()

    def read(self, folder: Path) -> Dataset:
        x = np.linspace(0, 1, self.options.num_rows)
        return Dataset(rows={"x": x}, constants={"scale": 2.0}, declared_counts={"rows": self.options.num_rows})
"""

KERNEL = """
from bayesmesh.config.blocks import HamiltonianSettings, MetricName
from bayesmesh.kernels.random_walk import RandomWalk

class Options(HamiltonianSettings):
    metric: MetricName = "identity"

class Mine(RandomWalk):
    '''A walk whose state keeps the density of the place before.'''

    def step(self, key, state, target, tuning):
        after, info = super().step(key, state, target, tuning)
        return after._replace(log_likelihood=state.log_likelihood), info
"""


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Return a function that writes a module, checks its class `Mine`, and gives the exit code and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bayesmesh.sampling.density.mesh.configure_jax", lambda *_: None)
    jax.config.update("jax_enable_x64", True)

    def run(text: str, *words: str) -> tuple[int, str]:
        (tmp_path / "checked_code.py").write_text(text)
        forget_files()
        sys.modules.pop("checked_code", None)
        code = main(["check", "checked_code:Mine", *words])
        output = capfd.readouterr()
        assert "Traceback" not in output.out + output.err
        return code, output.out + output.err

    return run


def test_a_source_that_keeps_its_contract(check: Any) -> None:
    code, said = check(SOURCE)
    assert code == 0, said
    assert said.startswith(
        "source checked_code:Mine\nok        options: each of 1 has a description\nok        read: 9 rows, in fields x\n"
    )
    assert "no check fails" in said


@pytest.mark.parametrize(
    ("found", "instead", "said"),
    [
        ("np.linspace(0, 1, self.options.num_rows)", "np.random.default_rng().random(9)", "FAILS     again: read twice, the data differ"),
        ("np.linspace(0, 1, self.options.num_rows)", "np.array([0, 1, np.nan] * 3)", "FAILS     values: rows/x: row 3, counted from 1: a value is not finite"),
        ('rows={"x": x}', 'rows={"x": np.arange(9)}, variables={"x": Variable("category", ("a", "b"))}', "FAILS     values: rows/x: row 3, counted from 1: 2 is not the code of a level"),
        ("self.options.num_rows}", "7}", "FAILS     read: rows: expected 7, found 9"),
        ('"scale": 2.0', '"scale": np.float64(2)', "FAILS     constants: 'scale' is float64"),
        ("offers = ()", 'offers = ("averaging",)', "FAILS     offers: `offers` is ('averaging',), and the dataset does not hold test rows"),
        ("return Dataset(", "return dict(", "FAILS     read: `read` returns dict instead of a Dataset"),
        ("x = np", "x = nq", "FAILS     read: "),
        ("def read(", "def reads(", "FAILS     read: Mine lacks read"),
        (', description="Rows."', "", "checked_code.py: option 'num_rows' has no description"),
        ('    pretty_name = "Mine"\n', "", "FAILS     words: the class has no pretty_name"),
    ],
)  # fmt: skip
def test_a_source_that_breaks_its_contract(check: Any, found: str, instead: str, said: str) -> None:
    assert found in SOURCE
    code, output = check(SOURCE.replace(found, instead))
    assert code == 1
    assert said in output
    assert "remedy: " in output
    assert "of these checks fail" in output


def test_a_kernel_whose_state_is_not_of_its_position(check: Any) -> None:
    code, said = check(KERNEL.replace('"identity"\n', '"identity"\n    bare: int = 1\n'))
    assert code == 1
    assert "checked_code.py: option 'bare' has no description\n          remedy: write one" in said
    assert "\nok        run: " in said
    assert "FAILS     density: `log_likelihood` of the state is not that of its position\n          remedy: " in said


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (
            "step(self, key, *given):\n        return super().step(jax.numpy.broadcast_to(key[:1], key.shape), *given)",
            "FAILS     keys: two chains that start at one position make the same moves",
        ),
        ("num_adaptive(self):\n        return self.num_warmup + 1", "num_adaptive is 301 of 300 warmup iterations"),
    ],
)
def test_random_numbers_that_chains_share_and_late_adaptation(check: Any, method: str, said: str) -> None:
    decorator = "@property\n    " if "num_adaptive" in method else ""
    text = KERNEL.partition("    def step")[0] + f"    {decorator}def {method}\n"
    code, found = check(f"import jax\n{text}")
    assert code == 1
    assert said in found
