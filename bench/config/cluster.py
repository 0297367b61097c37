"""Where a run takes place: this machine, an emulation, or an engine's allocation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from bench.config.checks import positive, require, zero_or_more
from bench.errors import near

_NAME = re.compile(r"(?=.{1,63}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|[MGTPE]|[KMGTPE]i)?")


@dataclass(frozen=True)
class Cluster:
    name: str = "local"
    interface: str | None = None  # network interface for gloo; None: derived from the route to node 0
    rehearsal: list[str] = field(default_factory=list)  # overrides with which a GPU scenario is rehearsed
    namespaces: bool = False  # emulated: every node in a network namespace of its own (root)
    # --- engines alike
    wait: bool = True  # False: submit, print how to collect, return
    python: str | None = None  # interpreter on the nodes; None: the one that runs this command
    setup: list[str] = field(default_factory=list)  # shell lines before a runner starts: module load, source ...
    env: dict[str, str] = field(default_factory=dict)  # for every runner
    poll_s: float = 5.0  # how often the engine is asked for the job's state
    # --- slurm
    partition: str | None = None
    account: str | None = None
    time: str | None = None  # [D-]HH:MM:SS; None: from the budget or the prediction
    gres: str | None = None  # e.g. gpu:8; None: --gpus-per-node from ranks_per_node where the device is cuda
    constraint: str | None = None
    exclusive: bool = True
    container: str | None = None  # pyxis image or apptainer file
    container_mounts: list[str] = field(default_factory=list)
    container_runtime: str = "pyxis"  # pyxis | apptainer
    directives: list[str] = field(default_factory=list)  # extra #SBATCH lines, without "#SBATCH "
    srun_args: list[str] = field(default_factory=list)
    requeue: bool = False  # the engine requeues the job when a node fails; else the step goes on without it
    # --- kubernetes
    image: str | None = None
    namespace: str = "default"
    pvc: str | None = None  # claim on which results, and checkpoints unless told otherwise, lie
    checkpoint_pvc: str | None = None  # another claim for the checkpoints, mounted at storage.dir if that is given
    overlay: str | None = None  # file with a merge patch for each kind of the manifest
    jobset: bool = False  # a JobSet in place of an Indexed Job
    efa: int = 0  # EFA interfaces of a pod
    cpu: str | None = None  # of a pod; None: not asked for with GPUs, else what the ranks compute with
    memory: str | None = None  # of a pod, /dev/shm included; None: not limited
    shm: str = "64Gi"  # size of /dev/shm
    node_dir: str | None = "/var/tmp/bench"  # folder of the host that outlives a container; None: goes with its pod
    selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[dict[str, str]] = field(default_factory=list)
    start_patience_s: float = 1800.0  # how long pods wait for each other: queues, new machines, pulling the image

    def __post_init__(self) -> None:
        known = ("local", "emulated", "slurm", "kubernetes")
        require(self.name in known, "cluster", f"unknown launcher {self.name!r}; {near(self.name, known)}")
        positive("cluster.poll_s", self.poll_s)
        runtimes = ("pyxis", "apptainer")
        wrong = f"must be pyxis or apptainer, got {self.container_runtime!r}"
        require(self.container_runtime in runtimes, "cluster.container_runtime", wrong)
        zero_or_more("cluster.efa", self.efa)
        self._require_kubernetes()

    def _require_kubernetes(self) -> None:
        """Names and quantities in the form that the API server accepts, so that a mistake shows before a submit."""
        wrong = f"must be lower-case letters, digits and '-', got {self.namespace!r}"
        require(_NAME.fullmatch(self.namespace) is not None, "cluster.namespace", wrong)
        for name, value in (("shm", self.shm), ("cpu", self.cpu), ("memory", self.memory)):
            wrong = f"must be a Kubernetes quantity such as 500m, 8 or 64Gi, got {value!r}"
            require(value is None or _QUANTITY.fullmatch(value) is not None, f"cluster.{name}", wrong)
        wrong = f"must be an absolute path of the host or null, got {self.node_dir!r}"
        require(self.node_dir is None or self.node_dir.startswith("/"), "cluster.node_dir", wrong)
        positive("cluster.start_patience_s", self.start_patience_s)

    @property
    def engine(self) -> bool:
        """Whether other machines than this one run it."""
        return self.name in ("slurm", "kubernetes")
