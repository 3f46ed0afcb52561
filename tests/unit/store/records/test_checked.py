"""JSON with a digest of itself: whatever was changed in it, nobody takes it for what was written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bayesmesh.errors import StoreError
from bayesmesh.files import write_json
from bayesmesh.store.records.checked import read_checked, write_checked, write_checked_once

RECORD = {"identity": "0123456789abcdef", "environment": {"xla_flags": "", "kind": "cpu"}, "segment_draws": 4}


def test_a_record_comes_back_without_its_digest(tmp_path: Path) -> None:
    write_checked(tmp_path / "a.json", {**RECORD, "pair": (1, 2.5)})
    assert read_checked(tmp_path / "a.json", must_have_digest=True) == {**RECORD, "pair": [1, 2.5]}


def test_every_flipped_bit_is_damage_or_harmless(tmp_path: Path) -> None:
    """Also one in the name of the digest, which would make the file look as if it never had one."""
    path = tmp_path / "store.json"
    write_checked(path, RECORD)
    whole, num_found = path.read_bytes(), 0
    for position in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:position] + bytes([whole[position] ^ 1 << bit]) + whole[position + 1 :])
            try:
                found = read_checked(path)
            except StoreError:
                num_found += 1
                continue
            assert found == RECORD, (position, bit)
    assert num_found > 7 * len(whole)


@pytest.mark.parametrize("change", [{"segment_draws": 8}, {"environment": {"kind": "cpu"}}, {"new": 1}])
def test_a_changed_added_or_removed_value_is_damage(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "store.json"
    write_checked(path, RECORD)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(StoreError, match=r"store\.json: is damaged: its content is not what was written\n  remedy: so"):
        read_checked(path, "so and so")


def test_a_record_under_another_name_is_damage(tmp_path: Path) -> None:
    write_checked(tmp_path / "group-000.json", RECORD)
    (tmp_path / "group-000.json").rename(tmp_path / "group-001.json")
    with pytest.raises(StoreError, match=r"group-001\.json: is damaged"):
        read_checked(tmp_path / "group-001.json")


def test_a_record_of_an_earlier_version_has_no_digest(tmp_path: Path) -> None:
    path = tmp_path / "store.json"
    write_json(path, RECORD)
    assert read_checked(path) == RECORD
    with pytest.raises(StoreError, match="is damaged"):
        read_checked(path, must_have_digest=True)


def test_what_is_written_once_stays(tmp_path: Path) -> None:
    path = tmp_path / "a" / "identity.json"
    assert write_checked_once(path, {"segment_draws": 64}, "none") == {"segment_draws": 64}
    assert write_checked_once(path, {"segment_draws": 32}, "none") == {"segment_draws": 64}
    assert list(path.parent.iterdir()) == [path]


def test_of_two_that_write_at_once_both_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one's file appears between looking and linking."""
    path, link = tmp_path / "identity.json", os.link

    def other_first(source: Path, target: Path) -> None:
        write_checked(path, {"segment_draws": 64})
        link(source, target)

    monkeypatch.setattr(os, "link", other_first)
    assert write_checked_once(path, {"segment_draws": 32}, "none") == {"segment_draws": 64}
    assert list(tmp_path.iterdir()) == [path]
