"""The processes of one run, and what they agree on.

All of them run the same programs in the same order, or the collectives in these would wait for ever. So whatever could
make one of them turn off, a signal, an error, enough draws, is first told to all.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from bayesmesh.errors import PeerError, StoreError
from bayesmesh.store.manifests import PROCESSES_REMEDY
from bayesmesh.store.markers import Commit
from bayesmesh.store.segments import ChainStore

__all__ = ["Peers", "resume_together"]


class Peers:
    """A process and its peers: by itself one that has none.

    Attributes:
        index: number of this process.
        num_processes: of the run.
        have_parted: whether all have agreed to go no further, so that each may leave as it likes.
    """

    index, num_processes = 0, 1

    def __init__(self) -> None:
        self.have_parted = False

    @property
    def is_first(self) -> bool:
        """Whether this process writes what all of them hold."""
        return self.index == 0

    @property
    def is_alone(self) -> bool:
        return self.num_processes == 1

    def exchange(self, value: Any) -> list[Any]:
        """Tell all processes a small JSON value; returns what each of them told, by index.

        All call it in the same order, and none while a program with collectives runs.
        """
        return [value]

    def together(self) -> _Together:
        """Return a context whose block fails in all processes when it fails in one.

        The block must not talk to the others, and must not run programs with collectives.
        """
        return _Together(self)

    def raise_failure(self, said: list[str]) -> None:
        """Raise when a process told that it failed.

        Args:
            said: what went wrong, by index; empty for a process with which all is well.

        Raises:
            PeerError: one of them did, and it is not this one.
        """
        for index, text in enumerate(said):
            self.have_parted |= bool(text)
            if text and not said[self.index]:
                raise PeerError(
                    f"process {index} of {self.num_processes} failed: {text}", "mend that and run all of them again"
                )


class _Together:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        said = self._peers.exchange("" if value is None else f"{value}" or type(value).__name__)
        self._peers.raise_failure(said)


def resume_together(store: ChainStore, peers: Peers) -> Commit | None:
    """Return the last commit that all processes have; None when there is none. The store is ready to be written.

    None is more than one commit ahead of another, since each waits for all before it settles one; and what is not
    settled can be withdrawn.

    Raises:
        StoreError: something is damaged, or the processes' folders do not belong together.
        PeerError: so it is with another process.
    """
    with peers.together():
        last = store.resume()
    # Its name, and that of the commit which would be the last without it.
    known = [last.name, last.replaces or last.previous or ""] if last is not None else ["", ""]
    all_known = peers.exchange(known)
    newest = {names[0] for names in all_known}
    common = [name for name in newest if all(name in names for names in all_known)]
    with peers.together():
        if len(newest) > 1 and not common:
            there = ", ".join(f"process {i}: {names[0] or 'nothing'}" for i, names in enumerate(all_known))
            raise StoreError(
                f"{store.folder.parent}: the processes of the group are more than one commit apart: {there}",
                PROCESSES_REMEDY,
            )
        if known[0] != common[0]:
            store.withdraw()
        last = store.begin_writing()
        if (last.name if last is not None else "") != common[0]:
            raise StoreError(f"{store.folder}: commit {common[0]} is gone", "move the folders away to start afresh")
    return last
