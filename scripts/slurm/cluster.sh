#!/usr/bin/env bash
# Slurm with two nodes on this host, for trying launches: source it as root, then cluster_start FOLDER
# and cluster_stop. Needs slurmctld, slurmd and munge (Debian: apt-get install slurm-wlm munge).
#
# Both slurmd run here under the names n1 and n2, without cgroups: tasks share the host's cores.

cluster_start() {
    local folder=$1 host
    host=$(hostname -s)
    mkdir -p "$folder/state" /run/munge
    export SLURM_CONF=$folder/slurm.conf
    cat >"$SLURM_CONF" <<CONF
ClusterName=collscope
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldPort=26817
SlurmdTimeout=10
KillWait=2
SlurmdParameters=config_overrides
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[27001-27002] CPUs=8 RealMemory=1000 State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES State=UP OverSubscribe=YES
CONF
    # A key and a daemon of its own, so that a munge of the host is left alone.
    install -d -m 700 "$folder/munge"
    (umask 077 && head -c 128 /dev/urandom >"$folder/munge/key")
    cluster_pids=()
    munged --foreground --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
        --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" \
        >"$folder/munged.out" 2>&1 &
    cluster_pids+=($!)
    slurmctld -D >"$folder/slurmctld.log" 2>&1 &
    cluster_pids+=($!)
    cluster_node n1
    cluster_node n2
    cluster_wait 2
}

# cluster_node NAME: start its slurmd; cluster_kill NAME ends it, as when a node is lost.
cluster_node() {
    slurmd -D -N "$1" >>"$(dirname "$SLURM_CONF")/$1.log" 2>&1 &
    cluster_pids+=($!)
    declare -g "cluster_$1=$!"
}
cluster_kill() {
    local pid=cluster_$1
    kill -9 "${!pid}"
}

# cluster_wait N: until N nodes are idle.
cluster_wait() {
    for _ in $(seq 60); do
        [ "$(sinfo -h -N -o %T 2>/dev/null | grep -c '^idle')" -ge "$1" ] && return
        sleep 1
    done
    echo "cluster: $1 nodes are not idle after 60 s" >&2
    tail -n 5 "$(dirname "$SLURM_CONF")"/*.log >&2
    return 1
}

# Ends the jobs first, since a slurmd waits for its steps, and what is left ten seconds after that.
cluster_stop() {
    local pid
    squeue -h -o %A 2>/dev/null | xargs -r scancel 2>/dev/null
    for _ in $(seq 20); do
        [ -n "$(squeue -h 2>/dev/null)" ] || break
        sleep 0.5
    done
    kill "${cluster_pids[@]}" 2>/dev/null
    for _ in $(seq 20); do
        cluster_alive >/dev/null || break
        sleep 0.5
    done
    for pid in $(cluster_alive); do
        kill -9 "$pid" 2>/dev/null
    done
    wait "${cluster_pids[@]}" 2>/dev/null
    return 0
}

# Processes of this cluster that still run, known by its configuration; status 1 when there are none.
cluster_alive() {
    local pid found=1
    for pid in $(pgrep '^(slurm|munged)'); do
        if grep -qsz "^SLURM_CONF=$SLURM_CONF$" "/proc/$pid/environ"; then
            echo "$pid"
            found=0
        fi
    done
    return $found
}
