"""Keep the results of a job's last run until the job has made new ones.

Snakemake removes the outputs of a job before it starts and after it fails. Outputs with the flag ``update`` are copied
before the job, and copied back if it fails. Our stages replace their outputs only when the new ones are complete, so
whatever is there is always complete, and copies of large posteriors are not needed.
"""

from __future__ import annotations

from pathlib import Path

from snakemake.persistence import FileBackupMixin


def keep_outputs() -> None:
    """Let Snakemake neither copy outputs with the flag ``update``, nor remove them when their job fails."""
    FileBackupMixin.backup_output = lambda _self, _path: None
    FileBackupMixin.restore_output = _is_kept
    FileBackupMixin.cleanup_backup = lambda _self, _path: None


def _is_kept(_self: FileBackupMixin, path: Path) -> bool:
    return path.exists()
