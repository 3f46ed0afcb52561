"""An analysis reads only what it declares: other changes would not run it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.analyses.base import Subject
from bayesmesh.errors import ConfigError
from bayesmesh.store.layout import ExperimentLayout


def test_draws_and_data_that_are_not_declared_are_refused(tmp_path: Path) -> None:
    subject = Subject(ExperimentLayout(tmp_path, "own"), reads_posterior=False)
    with pytest.raises(ConfigError, match="reads draws without declaring it"):
        _ = subject.posterior
    with pytest.raises(ConfigError, match="reads data without declaring it"):
        _ = subject.bound
