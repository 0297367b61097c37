"""The resolved configuration of a run: frozen records, validated where they are made.

Hydra composes at the edge (bench.__main__); everything inside sees these classes. Each rule's message names the field,
the rule and the remedy. Fields are documented where a user meets them, in conf/.

run       Run, the whole, and what its parts ask of each other      checks   the rules that many fields share
parts     model, data, training, checkpoints, storage, design ...   cluster  where it takes place
recovery  faults and what brings the job back
"""

from bench.config.checks import positive, require
from bench.config.cluster import Cluster
from bench.config.parts import Budget, Checkpoint, Data, Design, Job, Model, Storage, Train
from bench.config.recovery import MOMENTS, Fault, Faults, Recovery
from bench.config.run import Run, run_from_json

__all__ = [
    "MOMENTS",
    "Budget",
    "Checkpoint",
    "Cluster",
    "Data",
    "Design",
    "Fault",
    "Faults",
    "Job",
    "Model",
    "Recovery",
    "Run",
    "Storage",
    "Train",
    "positive",
    "require",
    "run_from_json",
]
