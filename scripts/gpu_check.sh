#!/usr/bin/env bash
# Does everything work on the GPUs of this machine? Under 8 minutes on one GPU, and a result that can be committed.
#
#   scripts/gpu_check.sh                     environment, doctor, checkpoints on 1 GPU (and 2), recovery
#   scripts/gpu_check.sh --rehearse          the same steps on CPU ranks: tries the script, says nothing about GPUs
#
# Environment: PYTHON (default .venv/bin/python), MACHINE (name under results/; default: by GPU, e.g. 1x-NVIDIA-H200),
# RESULTS (default results), LIMIT_S (default 470), WORK_DIR (node-local; default: the system's temporary folder).
# Exit codes: 0 all steps worked, 1 one did not, 2 no GPU or no torch. What each step said lies in the folder named last.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-.venv/bin/python}
RESULTS=${RESULTS:-results}
LIMIT_S=${LIMIT_S:-470}  # of all steps together; recovery comes last and gets what is left
DEVICE=cuda
[ "${1:-}" = --rehearse ] && DEVICE=cpu

fail() { echo "gpu_check: $1" >&2; exit 2; }

"$PYTHON" -c 'import torch' 2>/dev/null || fail "$PYTHON has no torch; make setup, or give PYTHON=PATH"
GPUS=$("$PYTHON" -c 'from bench import environment; print(len(environment.gpus()))')
if [ "$DEVICE" = cuda ]; then
    HIDDEN=${CUDA_VISIBLE_DEVICES+ (CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES)}
    [ "$GPUS" -gt 0 ] ||
        fail "no GPU answers through NVML$HIDDEN; run it on a GPU machine, or try the script with --rehearse"
    "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
        fail "$GPUS GPUs, and torch does not see them; install a CUDA build that fits the driver"
else
    GPUS=2
fi
MOST=$((GPUS >= 2 ? 2 : 1))
NAME=$("$PYTHON" - "$DEVICE" <<'PY'
import sys
from bench import environment
gpus = environment.gpus() if sys.argv[1] == "cuda" else []
print(environment.machine_name(f"{len(gpus)}x-{gpus[0]['name']}" if gpus else "cpu-rehearsal"))
PY
)
MACHINE=${MACHINE:-$NAME}
OUT=$RESULTS/$MACHINE/gpu_check/$(date -u +%Y-%m-%dT%H-%M-%SZ)
mkdir -p "$OUT"
COMMON=(device=$DEVICE machine="$MACHINE" results_dir="$RESULTS" ${WORK_DIR:+work_dir="$WORK_DIR"})

left() { echo $((LIMIT_S > SECONDS ? LIMIT_S - SECONDS : 1)); }

# step NAME COMMAND ...: run it within what is left, keep what it says, note how it ended and how long it took.
STEPS=()
step() {
    local name=$1 code=0 begin=$SECONDS
    shift
    echo "gpu_check: $name"
    timeout --kill-after=30 "$(left)" "$@" >"$OUT/$name.txt" 2>&1 || code=$?
    STEPS+=("$name $code $((SECONDS - begin))")
    echo "gpu_check: $name ended with $code after $((SECONDS - begin)) s"
}

"$PYTHON" - "$OUT/environment.json" <<'PY'
import json, sys
from pathlib import Path
from bench import environment
out = Path(sys.argv[1])
out.write_text(json.dumps(environment.describe(Path("."), out.parent), indent=1) + "\n")
PY

step doctor "$PYTHON" -m bench doctor scenario=ckpt_smoke ranks_per_node=$MOST "${COMMON[@]}"
step ckpt_1 "$PYTHON" -m bench run scenario=ckpt_smoke ranks_per_node=1 "${COMMON[@]}"
if [ "$MOST" -eq 2 ]; then
    step ckpt_2 "$PYTHON" -m bench run scenario=ckpt_smoke ranks_per_node=2 "${COMMON[@]}"
fi
if [ -e scenarios/recovery_smoke.yaml ]; then
    step recovery "$PYTHON" -m bench run scenario=recovery_smoke ranks_per_node=$MOST \
        budget.minutes="$("$PYTHON" -c "print(max($(left) - 30, 30) / 60)")" "${COMMON[@]}"
fi

printf '%s\n' "${STEPS[@]}" | "$PYTHON" -c '
import json, sys
rows = [line.split() for line in sys.stdin]
steps = [{"step": name, "exit_code": int(code), "seconds": int(seconds)} for name, code, seconds in rows]
json.dump(steps, sys.stdout, indent=1)
' >"$OUT/steps.json"

echo "gpu_check: $OUT"
echo "gpu_check: to commit a run of it: $PYTHON scripts/keep_reference.py $RESULTS/$MACHINE/SCENARIO/TIME"
[ "$(printf '%s\n' "${STEPS[@]}" | awk '$2 != 0' | wc -l)" -eq 0 ]
