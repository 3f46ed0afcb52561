"""A folder of results in which nothing can be written is refused before any job."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from bayesmesh.errors import StoreError
from bayesmesh.workflow.results_folder import refuse_results


def test_a_folder_that_can_be_written_or_made_is_taken(tmp_path: Path) -> None:
    refuse_results(tmp_path)
    refuse_results(tmp_path / "later")
    (tmp_path / "elsewhere").symlink_to(tmp_path)
    refuse_results(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.symlink_to(path.parent / "gone"), "a link to .*gone, which does not exist"),
        (lambda path: path.write_text("mine"), ": a file"),
    ],
)
def test_what_is_no_folder_is_refused(tmp_path: Path, make, said: str) -> None:
    make(tmp_path / "results")
    with pytest.raises(StoreError, match=said) as caught:
        refuse_results(tmp_path / "results")
    assert re.search("remove the link|move it away", caught.value.remedy)


def test_a_folder_that_is_mounted_read_only_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions do not stop root, under which these tests may run; a file system does."""
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(StoreError, match="cannot be written") as caught:
        refuse_results(tmp_path)
    assert "mounted" in caught.value.remedy
