"""Write and read checkpoints: the leaves of a state, with large ones in files of their own that commits share.

A leaf that does not change, such as the factor of a fixed metric, is written once, whatever the number of commits: its
file is named by the digest of its content.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bayesmesh.errors import StoreError
from bayesmesh.files import atomic_path, hash_file
from bayesmesh.store.chains.markers import CHECKPOINTS, DAMAGE_REMEDY, Commit

LARGE_BYTES = 8 * 2**20
"""Size from which a leaf has a file of its own."""

_IN_FILE = "@file"
"""Suffix of an archive's entry that names the file of a leaf."""


class Checkpoints:
    """The checkpoints of a chain group.

    Args:
        folder: the group's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[str, str] = {}

    def write(self, name: str, leaves: Mapping[str, np.ndarray]) -> dict[str, str]:
        """Write a checkpoint; files that this object has written before are not written again.

        Args:
            name: of the archive, without its folder.
            leaves: leaves of the state.

        Returns:
            file, relative to the group's folder -> sha256; the archive is the last.
        """
        entries, files = dict[str, np.ndarray](), dict[str, str]()
        for leaf, value in leaves.items():
            if value.nbytes < LARGE_BYTES:
                entries[leaf] = value
                continue
            file = f"{CHECKPOINTS}/{_digest(value)}.npy"
            if file not in self._written:
                with atomic_path(self._folder / file) as temporary, temporary.open("wb") as handle:
                    np.save(handle, value, allow_pickle=False)
                self._written[file] = hash_file(self._folder / file)
            files[file] = self._written[file]
            entries[f"{leaf}{_IN_FILE}"] = np.asarray(file)
        archive = f"{CHECKPOINTS}/{name}"
        with atomic_path(self._folder / archive) as temporary, temporary.open("wb") as handle:
            np.savez(handle, allow_pickle=False, **entries)
        return {**files, archive: hash_file(self._folder / archive)}

    def read(self, commit: Commit) -> dict[str, np.ndarray]:
        """Return the leaves of the state after a commit.

        Raises:
            StoreError: a file is missing, damaged, or contains anything but plain arrays.
        """
        path = self._folder / commit.checkpoint
        try:
            # Not opened by NumPy, which leaves the file open if the archive is incomplete.
            with path.open("rb") as handle, np.load(handle, allow_pickle=False) as archive:
                found = {name: archive[name] for name in archive.files}
            for name in [name for name in found if name.endswith(_IN_FILE)]:
                path = self._folder / str(found.pop(name))
                found[name.removesuffix(_IN_FILE)] = np.load(path, allow_pickle=False)
        except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise StoreError(f"{path}: cannot be read: {error}", DAMAGE_REMEDY) from error
        return found

    def keep(self, commits: Sequence[Commit]) -> None:
        """Delete all files but those that these commits name."""
        kept = {name for commit in commits for name in commit.checkpoint_files}
        for path in (self._folder / CHECKPOINTS).iterdir():
            if f"{CHECKPOINTS}/{path.name}" not in kept:
                path.unlink()
                self._written.pop(f"{CHECKPOINTS}/{path.name}", None)


def _digest(value: np.ndarray) -> str:
    """Return a name for the content of an array, its shape and its dtype."""
    digest = hashlib.sha256(f"{value.dtype.str} {value.shape}".encode())
    digest.update(np.ascontiguousarray(value).view(np.uint8))
    return digest.hexdigest()[:32]
