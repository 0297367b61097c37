#!/usr/bin/env bash
# The first hour on an EKS cluster with nodes of 8 GPUs: what checkpoints cost, then how long recovery takes.
#
#   scripts/eks_quickstart.sh NODES IMAGE CLAIM CHECKPOINT_CLAIM [KEY=VALUE ...]
#
#   scripts/eks_quickstart.sh 2 REGISTRY/ckpt-bench:TAG bench bench-checkpoints     # 2 nodes
#   scripts/eks_quickstart.sh 4 REGISTRY/ckpt-bench:TAG bench bench-checkpoints     # 4 nodes
#   scripts/eks_quickstart.sh 8 REGISTRY/ckpt-bench:TAG bench bench-checkpoints     # 8 nodes, Llama 3 8B: the published scale
#
# Expected, from the moment all pods run: the checkpoint scenario at most 55 minutes (its budget.minutes ends it), at 2,
# 4 and 8 nodes alike; the recovery scenario at most as long again. Add `dry_run=true` to see the manifests alone. A
# node's pod holds all its GPUs: 2 nodes x 2 x 55 minutes are at most 30 GPU-hours, 8 nodes 118.
#
# Before: an image (scripts/Dockerfile), claims (scripts/eks_claim.yaml), rights (scripts/eks_rbac.yaml), and
# pip install '.[kubernetes]' on the machine that submits. p5.48xlarge has 32 EFA interfaces; give cluster.efa= for others.
set -euo pipefail

if (($# < 4)) || [[ ! $1 =~ ^(2|4|8)$ ]]; then
    sed -n '2,/^set/{/^set/!p}' "$0" | sed 's/^# \{0,1\}//' >&2
    exit 2
fi
nodes=$1 image=$2 claim=$3 checkpoints=$4
shift 4
cd "$(dirname "$0")/.."
python=${PYTHON:-$([[ -x .venv/bin/python ]] && echo .venv/bin/python || echo python3)}

for scenario in canary "ckpt_${nodes}node" "recovery_${nodes}node"; do
    "$python" -m bench run "scenario=$scenario" cluster=kubernetes "cluster.image=$image" "cluster.pvc=$claim" \
        "cluster.checkpoint_pvc=$checkpoints" cluster.efa=32 "$@"
done
