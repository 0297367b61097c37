"""torchrun: torch's elastic agent restarts all ranks of the job when one of them fails."""

from __future__ import annotations

import math

from bench.recovery.base import Layer, Place, Process
from bench.recovery.timeouts import unmeasured


class Torchrun(Layer):
    name = "torchrun"
    anchors = (r"failed \(exitcode: ", r"will restart worker group")
    inside = "bench.recovery.inside.torchrun:TorchrunInside"

    def processes(self, place: Place) -> list[Process]:
        command = [place.python, "-m", "torch.distributed.run", *rendezvous(place)]
        return [Process("agent", [*command, "-m", place.worker_module], AGENT_ENV, None)]


# With the rendezvous store shared, a restarted gloo group can read addresses of the dead one.
AGENT_ENV = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def rendezvous(place: Place) -> list[str]:
    """The options that torchrun and ft_launcher have in common: who meets where, how often, how long."""
    times = place.timeouts or unmeasured()
    conf = {"is_host": str(place.node == 0).lower(), "join_timeout": math.ceil(times.rendezvous_s)}
    return [
        f"--nnodes={place.num_nodes}",
        f"--nproc-per-node={place.local_world_size}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={place.host}:{place.agent_port}",
        f"--rdzv-id={place.launch_id}",
        "--rdzv-conf=" + ",".join(f"{key}={value}" for key, value in conf.items()),
        f"--max-restarts={place.max_restarts}",
        f"--monitor-interval={times.monitor_interval_s:g}",
    ]
