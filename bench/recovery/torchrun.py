"""torchrun: torch's elastic agent restarts all ranks of the job when one of them fails."""

from __future__ import annotations

from bench.recovery.base import WORKER_MODULE, Layer, Place, Process

MAX_RESTARTS = 3


class Torchrun(Layer):
    name = "torchrun"

    def processes(self, place: Place) -> list[Process]:
        command = [place.python, "-m", "torch.distributed.run"]
        command += [f"--nnodes={place.num_nodes}", f"--nproc-per-node={place.ranks_per_node}"]
        command += [
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={place.host}:{place.agent_port}",
            f"--rdzv-id={place.launch_id}",
        ]
        command += [
            f"--rdzv-conf=is_host={str(place.node == 0).lower()}",
            f"--max-restarts={MAX_RESTARTS}",
            "--monitor-interval=0.1",
        ]
        # With the rendezvous store shared, a restarted gloo group can read addresses of the dead one.
        env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        return [Process("agent", [*command, "-m", WORKER_MODULE], env, None)]
