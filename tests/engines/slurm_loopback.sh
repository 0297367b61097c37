#!/usr/bin/env bash
# A real Slurm of N nodes on one machine, for tests: as root, without systemd, up in about a second.
#
#   apt-get install -y --no-install-recommends slurm-wlm munge iproute2
#   slurm_loopback.sh up DIR N [GPUS]   start munged, slurmctld and N slurmd with fake GPUs; prints the variable to export
#   slurm_loopback.sh ready DIR N       wait until a real srun over N nodes has answered (idle in sinfo is not enough)
#   slurm_loopback.sh kill-node DIR I   power node I off: its PID namespace dies with slurmd, slurmstepd and workers
#   slurm_loopback.sh start-node DIR I  power it on again
#   slurm_loopback.sh down DIR          end everything that was started, by recorded pid
set -euo pipefail

usage() {
    sed -n '2,11s/^# \?//p' "$0"
    exit 2
}

[[ $# -ge 2 ]] || usage
action=$1
mkdir -p "$2"
base=$(cd "$2" && pwd)
state=$base/run
export SLURM_CONF=$base/slurm.conf PATH=$PATH:/usr/sbin:/sbin
patience=10 # of a client: it hangs against a dead controller

write_configuration() { # write_configuration NODES GPUS
    local nodes=$1 gpus=$2
    cat >"$SLURM_CONF" <<END
ClusterName=bench
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A credential that lives for 5 s lets a requeued job start after 8 s; by default that takes two minutes.
AuthInfo=socket=$state/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$state/state
SlurmdSpoolDir=$state/spool.%n
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/slurmd.%n.pid
SlurmctldLogFile=$state/slurmctld.log
SlurmdLogFile=$state/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=5
SlurmctldTimeout=10
InactiveLimit=0
KillWait=5
MinJobAge=300
TreeWidth=64
JobRequeue=1
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
NodeName=n[1-$nodes] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[17001-$((17000 + nodes))] CPUs=16 Boards=1 SocketsPerBoard=1 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=16000 Gres=gpu:$gpus State=UNKNOWN
PartitionName=bench Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
    # Without a File= of its own slurmd reports no GPU, and every node becomes invalid.
    echo "NodeName=n[1-$nodes] Name=gpu File=/dev/tty[0-$((gpus - 1))]" >"$base/gres.conf"
    echo "CgroupPlugin=cgroup/v1" >"$base/cgroup.conf"
}

start_munge() {
    mkdir -p "$state/state" "$state/munge"
    chmod 755 "$state"
    chmod 700 "$state/munge"
    if [[ ! -f $state/munge/munge.key ]]; then
        (umask 077 && head -c 128 /dev/urandom >"$state/munge/munge.key")
    fi
    munged --force --num-threads=2 --socket="$state/munge.socket" --key-file="$state/munge/munge.key" \
        --pid-file="$state/munge/munged.pid" --log-file="$state/munge/munged.log" --seed-file="$state/munge/munged.seed"
}

start_node() { # start_node I: PID and UTS namespaces of its own, so that the death of their first process is a power-off
    mkdir -p "$state/spool.n$1"
    unshare --pid --uts --mount --mount-proc --fork --kill-child=KILL bash -c \
        "hostname n$1; slurmd -D -N n$1 -f '$SLURM_CONF' & wait; while :; do sleep 3600; done" >"$state/slurmd.n$1.out" 2>&1 &
    echo $! >"$state/n$1.pid"
}

case $action in
up)
    nodes=$3
    write_configuration "$nodes" "${4:-8}"
    start_munge
    slurmctld -c -D -f "$SLURM_CONF" >"$state/slurmctld.out" 2>&1 &
    echo $! >"$state/ctld.pid"
    for ((i = 1; i <= nodes; i++)); do start_node "$i"; done
    echo "export SLURM_CONF=$SLURM_CONF"
    ;;
ready)
    for _ in $(seq 60); do
        timeout "$patience" srun --nodes="$3" --ntasks-per-node=1 true >/dev/null 2>&1 && exit 0
        sleep 0.5
    done
    timeout "$patience" sinfo
    exit 1
    ;;
kill-node)
    kill -9 "$(cat "$state/n$3.pid")"
    # Noticing by itself takes Slurm 25 s here.
    timeout "$patience" scontrol update nodename="n$3" state=down reason=power
    ;;
start-node)
    start_node "$3"
    sleep 1
    timeout "$patience" scontrol update nodename="n$3" state=resume || true # ReturnToService may have done it already
    ;;
down)
    pids=()
    for file in "$state"/n*.pid "$state/ctld.pid" "$state/munge/munged.pid"; do
        [[ -f $file ]] && pids+=("$(cat "$file")")
    done
    kill "${pids[@]}" 2>/dev/null || true
    sleep 1
    kill -9 "${pids[@]}" 2>/dev/null || true
    rm -f "$state"/n*.pid "$state/ctld.pid"
    ;;
*) usage ;;
esac
