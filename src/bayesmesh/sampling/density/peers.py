"""Coordinate the processes of one run.

All processes run the same programs in the same order; otherwise their collectives would wait forever. Anything that could
make one process stop, such as a signal, an error or a met stopping rule, is therefore first exchanged with all others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bayesmesh.errors import PeerError, StoreError
from bayesmesh.store.chains.manifests import PROCESSES_REMEDY
from bayesmesh.store.chains.markers import Commit
from bayesmesh.store.chains.segments import ChainStore


class Peers:
    """A process and its peers; this base class has none.

    Attributes:
        index: number of this process.
        num_processes: number of processes of the run.
        have_parted: whether all have agreed to stop, so that each may exit independently.
    """

    index, num_processes = 0, 1

    def __init__(self) -> None:
        self.have_parted = False

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes data that all processes hold."""
        return self.index == 0

    @property
    def is_alone(self) -> bool:
        return self.num_processes == 1

    def exchange[Value](self, value: Value) -> list[Value]:
        """Send a small JSON value to all processes; return the values of all, by index.

        All processes must call it in the same order, and never while a program with collectives runs.
        """
        return [value]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Make a block fail in all processes if it fails in one.

        The block must not communicate with the others or run programs with collectives.

        Raises:
            PeerError: it failed in another process.
        """
        try:
            yield
        except BaseException as error:
            self.raise_failure(self.exchange(f"{error}" or type(error).__name__))
            raise
        self.raise_failure(self.exchange(""))

    def raise_failure(self, said: list[str]) -> None:
        """Raise if a process reported a failure.

        Args:
            said: failure messages by index; empty for successful processes.

        Raises:
            PeerError: another process failed.
        """
        for index, text in enumerate(said):
            self.have_parted |= bool(text)
            if text and not said[self.index]:
                raise PeerError(
                    f"process {index} of {self.num_processes} failed: {text}",
                    "fix that error, then restart every process",
                )


def resume_together(store: ChainStore, peers: Peers) -> Commit | None:
    """Return the last commit that all processes have, or None, and prepare the store for writing.

    No process is more than one commit ahead, because each waits for all before it settles a commit, and an unsettled
    commit can be withdrawn.

    Raises:
        StoreError: the store is damaged, or the processes' folders do not belong together.
        PeerError: another process found such a problem.
    """
    with peers.together():
        last = store.resume()
    # Its name, and that of the commit that would be the last without it.
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
