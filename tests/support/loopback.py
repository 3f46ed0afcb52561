"""A real Slurm cluster on loopback: slurmctld, five slurmd, munge, fake GPUs, and accounting when asked for.

Nothing of the machine's own is used: keys, ports, state and logs are in a folder. Slurm's clients find the cluster
through ``/etc/slurm``, because a job step of the executor drops ``SLURM_CONF``; the links made there, and the nodes'
names in ``/etc/hosts``, go when the cluster stops.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

NODES = ("n1", "n2", "n3", "n4", "n5")
PARTITIONS = {
    "cpu": ("n1,n2", "Default=YES PriorityTier=10"),
    "gpu": ("n1,n2", "PriorityTier=10"),
    # Nodes that may be lost without harm to anybody else, and one whose jobs make way for urgent ones.
    "fragile": ("n3,n4", "PriorityTier=10"),
    "spare": ("n5", "PriorityTier=1"),
    "urgent": ("n5", "PriorityTier=10"),
}
"""Partition -> nodes, and what else there is to say of it."""

CPUS, MEMORY_MB, GPUS = 4, 8000, 3
"""Of each node; more than the machine may have. Three GPUs, so that four on two nodes may be one and three."""

MAX_MINUTES = 120
PATIENCE_SECONDS = 180.0
"""For a daemon that starts; one that cannot says so earlier, but for a machine that is busy."""
CONF, HOSTS = Path("/etc/slurm"), Path("/etc/hosts")
MARK = "# loopback cluster of the tests"
COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "slurmdbd", "mariadbd", "mariadb", "mariadb-install-db")
CONTROLLER_PORT, DATABASE_PORT, ACCOUNTING_PORT, NODE_PORT = 17817, 17306, 17819, 17820

SLURM_CONF = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# A requeued job waits for its credential to expire: 120 s by default.
AuthInfo=cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
# No cgroups: they would need privileges that a container does not have.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
MpiDefault=none
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=3
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
# What can never run is refused, and does not wait for ever.
EnforcePartLimits=ALL
# A node that somebody took down stays down.
ReturnToService=1
SlurmdTimeout=120
KillWait=8
MinJobAge=600
DefMemPerCPU=500
SlurmdParameters=config_overrides
{accounting}
"""

ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting_port}
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations
"""

SLURMDBD_CONF = """\
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={accounting_port}
SlurmUser=root
AuthType=auth/munge
PidFile={folder}/run/slurmdbd.pid
LogFile={folder}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct_db
"""


class ClusterError(Exception):
    """The cluster does not start; says where to look."""


@dataclasses.dataclass
class Cluster:
    """A loopback cluster.

    Attributes:
        folder: everything of it; its name begins with ``loopback``.
        has_accounting: whether a database keeps jobs; sacct works then, and an account is needed.
    """

    folder: Path
    has_accounting: bool
    _lock: int | None = None
    _children: list[subprocess.Popen[bytes]] = dataclasses.field(default_factory=list)
    _guard: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start all daemons and wait until all nodes are idle.

        Raises:
            ClusterError: a daemon does not come up, or this machine belongs to a cluster already.
        """
        CONF.mkdir(exist_ok=True)
        # One at a time on a machine: another session waits here. The lock goes with the process.
        self._lock = os.open(CONF, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        conf = CONF / "slurm.conf"
        if conf.is_symlink() and conf.resolve().parent.name.startswith("loopback"):
            # Of a session that was killed.
            Cluster(conf.resolve().parent, False).stop()
        if conf.exists() or conf.is_symlink():
            raise ClusterError(f"{conf} is there: this machine belongs to a cluster already")
        # Outlives this process and its group, and stops the cluster where they were killed.
        self._guard = subprocess.Popen(
            [sys.executable, __file__, str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        for name in ("run", "log", "dev", "state", "munge", *(f"spool/{n}" for n in NODES)):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        self._start_munge()
        self._configure()
        if self.has_accounting:
            self._start_database()
        self._daemon("slurmctld")
        self._wait("slurmctld answers", lambda: self.ask("scontrol", "ping").returncode == 0)
        for node in NODES:
            self._daemon("slurmd", "-N", node)
        self._wait("all nodes are idle", self._is_idle)

    def stop(self) -> None:
        """End what was started, by its process id, and take away what was put into the machine's folders."""
        if self.pid("slurmctld"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.ask("scancel", "--me", "--signal=KILL", "--full")
                self.ask("scancel", "--me")
        for name, command in (
            *((f"slurmd-{n}", "slurmd") for n in NODES), ("slurmctld", "slurmctld"), ("slurmdbd", "slurmdbd"),
            ("mariadbd", "mariadbd"), ("munged", "munged"),
        ):  # fmt: skip
            self._end(name, command)
        for child in self._children:
            child.wait(20)
        # Slurm itself leaves the steps of a job whose node was declared lost.
        end_processes_in(self.folder.parent)
        for path in CONF.glob("*.conf"):
            if path.is_symlink() and Path(os.readlink(path)).is_relative_to(self.folder):
                path.unlink()
        lines = HOSTS.read_text().splitlines(keepends=True)
        HOSTS.write_text("".join(line for line in lines if MARK not in line))
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._guard is not None:
            self._guard.communicate(b"stopped")
            self._guard = None

    def ask(self, *command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a client."""
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
        )

    def jobs(self) -> list[dict[str, str]]:
        """Return all jobs since the start, by the controller's own memory, which needs no accounting."""
        fields = {
            "id": "JobID", "state": "State", "nodes": "NodeList", "granted": "tres-alloc", "comment": "Comment",
            "partition": "Partition", "account": "Account", "limit": "TimeLimit", "memory": "MinMemory",
            "folder": "WorkDir", "restarts": "RestartCnt",
        }  # fmt: skip
        # Wide enough that nothing is cut; padded with blanks.
        form = ",".join(f"{field}:300" for field in fields.values())
        done = self.ask("squeue", "--states=all", "--noheader", "--sort=i", f"--Format={form}")
        lines = done.stdout.splitlines()
        return [
            {key: line[300 * n : 300 * (n + 1)].strip() for n, key in enumerate(fields)}
            for line in lines
            if line.strip()
        ]

    def pid(self, name: str) -> int | None:
        """Return the process of a daemon that runs."""
        try:
            number = int((self.folder / "run" / f"{name}.pid").read_text())
            os.kill(number, 0)
        except (OSError, ValueError):
            return None
        return number

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _start_munge(self) -> None:
        key = self.folder / "munge" / "munge.key"
        key.touch(0o400)
        key.write_bytes(secrets.token_bytes(1024))
        Path("/run/munge").mkdir(mode=0o755, exist_ok=True)
        run, log = self.folder / "run", self.folder / "log"
        # --force: munged does not like to run as root, nor in a temporary folder.
        self._daemon(
            "munged", "--force", f"--key-file={key}", f"--pid-file={run / 'munged.pid'}",
            f"--log-file={log / 'munged.log'}", f"--seed-file={self.folder / 'munge' / 'seed'}",
        )  # fmt: skip
        self._wait("munge answers", lambda: self.ask("munge", "-n").returncode == 0)

    def _configure(self) -> None:
        host = socket.gethostname().partition(".")[0]
        values = {
            "host": host, "folder": self.folder, "controller_port": CONTROLLER_PORT, "database_port": DATABASE_PORT,
            "accounting_port": ACCOUNTING_PORT, "password": secrets.token_hex(8),
        }  # fmt: skip
        accounting = ACCOUNTING if self.has_accounting else "AccountingStorageType=accounting_storage/none\n"
        lines = [SLURM_CONF.format(**values, accounting=accounting.format(**values))]
        gres = ["AutoDetect=off"]
        for number, node in enumerate(NODES):
            lines.append(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={NODE_PORT + number} CPUs={CPUS} Boards=1"
                f" SocketsPerBoard=1 CoresPerSocket={CPUS} ThreadsPerCore=1 RealMemory={MEMORY_MB}"
                f" Gres=gpu:h100:{GPUS} State=UNKNOWN"
            )
            gres.append(f"NodeName={node} Name=gpu Type=h100 File={self.folder}/dev/gpu[0-{GPUS - 1}]")
        for partition, (nodes, more) in PARTITIONS.items():
            lines.append(f"PartitionName={partition} Nodes={nodes} MaxTime={MAX_MINUTES} DefaultTime=10 {more}")
        for number in range(GPUS):
            # A twin of /dev/null stands for a card, so that CUDA_VISIBLE_DEVICES is set.
            os.mknod(self.folder / "dev" / f"gpu{number}", 0o20666, os.makedev(1, 3))
        files = {"slurm.conf": lines, "gres.conf": gres, "cgroup.conf": ["CgroupAutomount=no"]}
        if self.has_accounting:
            files["slurmdbd.conf"] = [SLURMDBD_CONF.format(**values)]
        for name, content in files.items():
            path = self.folder / name
            path.touch(0o600 if name == "slurmdbd.conf" else 0o644)
            path.write_text("\n".join(content) + "\n")
            (CONF / name).symlink_to(path)
        self._password = str(values["password"])
        # Names must resolve: JAX connects to the first node of a job by its name.
        with HOSTS.open("a") as file:
            file.writelines(f"127.0.0.1 {node} {MARK}\n" for node in NODES)

    def _start_database(self) -> None:
        data, run = self.folder / "mysql", self.folder / "run"
        sock = run / "mariadbd.sock"
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}",
             "--auth-root-authentication-method=normal", "--skip-test-db"],
            capture_output=True, check=True,
        )  # fmt: skip
        self._daemon(
            "mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={sock}",
            f"--pid-file={run / 'mariadbd.pid'}", "--bind-address=127.0.0.1", f"--port={DATABASE_PORT}",
            "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900", waits=False,
        )  # fmt: skip
        client = ("mariadb", "--no-defaults", "-uroot", "-S", str(sock), "-e")
        self._wait("the database answers", lambda: self.ask(*client, "select 1").returncode == 0)
        for place in ("127.0.0.1", "localhost"):
            self._must(*client, f"GRANT ALL ON slurm_acct_db.* TO 'slurm'@'{place}' IDENTIFIED BY '{self._password}'")
        self._must(*client, "CREATE DATABASE slurm_acct_db")
        self._daemon("slurmdbd")
        self._wait("slurmdbd answers", lambda: self.ask("sacctmgr", "-n", "list", "cluster").returncode == 0)
        for words in ("cluster loopback", "account tests", "user root account=tests"):
            self._must("sacctmgr", "-i", "add", *words.split())

    def _must(self, *command: str) -> None:
        done = self.ask(*command)
        if done.returncode:
            raise ClusterError(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")

    def _daemon(self, *command: str, waits: bool = True) -> None:
        """Start a daemon; one that does not put itself into the background is waited for when the cluster stops."""
        with (self.folder / "log" / f"{command[0]}.out").open("ab") as log:
            started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        if not waits:
            self._children.append(started)
        elif started.wait(PATIENCE_SECONDS):
            raise ClusterError(f"{command[0]} does not start: see {self.folder / 'log'}")

    def _end(self, name: str, command: str) -> None:
        number = self.pid(name)
        # A pid may be somebody else's by now.
        if number is None or Path(f"/proc/{number}/comm").read_text().strip() != command:
            return
        for which, seconds in ((signal.SIGTERM, 15), (signal.SIGKILL, 5)):
            os.kill(number, which)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                if self.pid(name) is None or _is_dead(number):
                    return
                time.sleep(0.05)

    def _is_idle(self) -> bool:
        done = self.ask("sinfo", "-h", "-N", "-t", "idle", "-o", "%N")
        return sorted(set(done.stdout.split())) == sorted(NODES)

    def _wait(self, what: str, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            if time.monotonic() > end:
                raise ClusterError(f"waited {PATIENCE_SECONDS:.0f} s in vain until {what}: see {self.folder / 'log'}")
            time.sleep(0.1)


def _is_dead(number: int) -> bool:
    """Whether a process has ended, though nobody has taken note of it."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def end_processes_in(folder: Path) -> list[str]:
    """End every process whose working folder is in a folder of the tests, but this one; returns their commands."""
    ended = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            place = Path(os.readlink(process / "cwd"))
            if place.is_relative_to(folder) and int(process.name) != os.getpid():
                ended.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                os.kill(int(process.name), signal.SIGKILL)
    return ended


def missing(commands: Sequence[str] = COMMANDS) -> list[str]:
    """Return the commands that are not installed."""
    folders = [Path(p) for p in (*os.environ["PATH"].split(os.pathsep), "/usr/sbin", "/usr/bin")]
    return [name for name in commands if not any((folder / name).exists() for folder in folders)]


def guard(folder: Path) -> None:
    """Stop a cluster once nobody can write to this process's input, unless it was told that the cluster has stopped."""
    # For the tests, which stop the cluster themselves.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.stdin.read():
        return
    lock = os.open(CONF, os.O_RDONLY)
    with contextlib.suppress(BlockingIOError):
        # Whoever has the lock by now begins by stopping what it finds.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        Cluster(folder, False).stop()


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
