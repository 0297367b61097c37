#!/usr/bin/env bash
# What checkpoints cost and how long recovery takes on 2, 4 or 8 nodes of 8 GPUs, under Slurm. From a login node:
#
#   bash scripts/slurm_quickstart.sh 2 cluster.partition=gpu storage.dir=/shared/checkpoints
#   bash scripts/slurm_quickstart.sh 4 cluster.partition=gpu storage.dir=/shared/checkpoints
#   bash scripts/slurm_quickstart.sh 8 cluster.partition=gpu storage.dir=/shared/checkpoints price_per_gpu_hour=2.5
#
# Three jobs, one after the other, each as soon as the queue lets it (times without the queue, predicted, not measured):
#   canary      2 nodes, a small state, saves, an exception: does it all work here?   under 4 minutes
#   checkpoints Llama 3 8B, synchronous and asynchronous saves                        20 (8 nodes) to 50 minutes (2)
#   recovery    the same model, struck by four faults under each of three layers      50 minutes; both end at 55
# `dry_run=true` as a last word prints for each of them the plan, GPU-hours, money and the job script, and starts nothing.
#
# One wait in the queue for all three: an allocation, of which they are then steps.
#   salloc --nodes=8 --ntasks-per-node=1 --gpus-per-node=8 --exclusive --mem=0 --time=2:30:00 --partition=gpu \
#       bash scripts/slurm_quickstart.sh 8 storage.dir=/shared/checkpoints
#
# results/ and storage.dir must be seen by all nodes, and lie better on different file systems. A job goes on when you close
# this terminal, and prints how to collect it; those after it are then not submitted.
set -euo pipefail

usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0"
    exit 2
}

[[ ${1:-} =~ ^(2|4|8)$ ]] || usage
nodes=$1
shift
cd "$(dirname "$0")/.."
bench=("${PYTHON:-.venv/bin/python}" -m bench run cluster=slurm)

step() { # step NAME WORD...: run it, and go no further where it could not be carried through
    printf '\n=== %s: %s\n' "$1" "${*:2}"
    "${@:2}" && return
    local code=$?
    ((code == 1)) || exit "$code"
    echo "$1 ended as invalid or failed: read its checks above before you trust what follows"
}

canary() { # the only one that stops the rest by any failure: nodes are dear
    printf '\n=== canary\n'
    "${bench[@]}" scenario=canary cluster.time=15 "$@"
}

canary "$@"
step checkpoints "${bench[@]}" "scenario=ckpt_${nodes}node" "$@"
step recovery "${bench[@]}" "scenario=recovery_${nodes}node" "$@"

printf '\nSeveral sizes in one table: %s -m bench report run=[RESULT,RESULT,...]\n' "${bench[0]}"
