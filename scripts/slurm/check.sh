#!/usr/bin/env bash
# check.sh BIN: collscope (of the folder BIN) under a real Slurm of two nodes on this host.
#
# Needs root, and Debian's slurm-wlm and munge; without them it prints that and ends with status 0. Each
# check runs a command and looks for its exit status and a line that it must print. Takes a minute.
set -uo pipefail

bin=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
samples=$(realpath "$here/../../samples/nccl/mixed")
for program in slurmctld slurmd srun munged; do
    if [ "$(id -u)" -ne 0 ] || ! command -v "$program" >/dev/null; then
        echo "check-slurm: skipped: needs root and $program (apt-get install slurm-wlm munge)"
        exit 0
    fi
done
# shellcheck source=scripts/slurm/cluster.sh
. "$here/cluster.sh"
export PATH=$bin:$PATH
folder=$(mktemp -d)
passed=0
failed=0

finish() {
    cluster_stop
    rm -rf "$folder"
}
trap finish EXIT
cluster_start "$folder" || exit 1
mkdir "$folder/work"
cd "$folder/work" || exit 1

# note TITLE STATUS WANTED PATTERN: files the outcome of a check, whose output is in the file output.
note() {
    if [ "$2" -eq "$3" ] && grep -qE -- "$4" output; then
        passed=$((passed + 1))
        echo "ok      $1"
    else
        failed=$((failed + 1))
        echo "FAILED  $1: status $2, wanted $3 and /$4/ in:"
        sed 's/^/        /' output
    fi
}

# check TITLE WANTED PATTERN COMMAND...
check() {
    local title=$1 wanted=$2 pattern=$3 status=0
    shift 3
    timeout 120 "$@" >output 2>&1 </dev/null || status=$?
    note "$title" "$status" "$wanted" "$pattern"
}

replay=(collscope replay --backend host --budget 0.01 --db t.db --sweep allreduce:1K)
two='AllReduce +Float32 +Sum +no +2 +1 KiB.* ok$'

check "srun --mpi=pmi2, a task on each node" 0 "$two" \
    srun -N2 -n2 --mpi=pmi2 "${replay[@]}"
check "salloc, the command starts mpiexec" 0 "$two" \
    salloc -Q -N2 -n2 "${replay[@]}" -n 2
check "salloc, --mpiexec 'srun --mpi=pmi2'" 0 "$two" \
    salloc -Q -N2 -n2 "${replay[@]}" -n 2 --mpiexec "srun --mpi=pmi2"
check "salloc, variants in turns by srun" 0 "$two" \
    salloc -Q -N2 -n2 "${replay[@]}" -n 2 --mpiexec "srun --mpi=pmi2" \
    --variant a:NCCL_ALGO=Ring --variant b: --rounds 2
check "srun --mpi=none: the cause is named" 2 "the launcher offers it no PMI. .*srun --mpi=pmi2" \
    srun -N2 -n2 --mpi=none "${replay[@]}"
check "salloc, --mpiexec srun without a PMI" 2 "the launcher offers it no PMI" \
    salloc -Q -N2 -n2 "${replay[@]}" -n 2 --mpiexec srun
check "too few tasks by srun" 2 "needs 4 ranks, .*launcher started 2 processes" \
    srun -N2 -n2 --mpi=pmi2 "${replay[@]}" --scale-ranks 4 -n 4
check "too few tasks in an allocation" 6 "srun ended with status 1" \
    salloc -Q -N2 -n2 "${replay[@]}" -n 40 --mpiexec "srun --mpi=pmi2"
check "bench p2p, a task on each node" 0 "^1 KiB" \
    salloc -Q -N2 -n2 collscope bench p2p -n 2 --backend host --budget 0.01 --sizes 1K --db t.db \
    --mpiexec "srun --mpi=pmi2"
check "bench p2p under srun says how" 2 "--mpiexec 'srun --mpi=pmi2'" \
    srun -N2 -n2 --mpi=pmi2 collscope bench p2p -n 2 --backend host --db t.db
collscope replay --sweep allreduce:1K -n 2 --dry-run --db t.db | grep -v '^ *#' >two.plan
check "tune says why the host backend cannot" 5 "--backend host has no settings to tune" \
    salloc -Q -N2 -n2 collscope tune --plan two.plan --backend host --mpiexec "srun --mpi=pmi2"
check "a partition that is not there" 6 "invalid partition specified: none" \
    "${replay[@]}" -n 2 --mpiexec "srun -p none"

# lose TITLE COMMAND...: the second node is lost once a class is measured.
lose() {
    local title=$1 status=0
    shift
    rm -f out.csv
    timeout 120 "$@" --csv out.csv >output 2>&1 </dev/null &
    local job=$!
    for _ in $(seq 200); do
        grep -q '^AllReduce' out.csv 2>/dev/null && break
        sleep 0.1
    done
    scontrol update nodename=n2 state=down reason=lost
    wait "$job" || status=$?
    note "$title" "$status" "$lost_status" "Node failure on n2"
    note "$title: what was measured is kept" 0 0 'finished measurements? (is|are) kept in out.csv; go on with --resume'
    scontrol update nodename=n2 state=resume 2>/dev/null
    cluster_wait 2
}
long=(collscope replay --backend host --budget 3 --db t.db --sweep "allreduce:64..64K+1K")
lost_status=130
lose "a node is lost under srun" srun -N2 -n2 --mpi=pmi2 "${long[@]}"
lost_status=6
lose "a node is lost in an allocation" salloc -Q -N2 -n2 "${long[@]}" -n 2 --mpiexec "srun --mpi=pmi2"

# Ranks that read logs for the first one.
logs=(collscope ingest log logs)
"$bin/python" "$here/../../benchmarks/make_run.py" 128 4000 logs 2>/dev/null
# Prints "same store" if all views of two stores have the same rows.
same=(env PYTHONPATH="$here/../../tests" "$bin/python" -c 'import sys
from pathlib import Path
from views import view_rows
print("same" if view_rows(Path(sys.argv[1])) == view_rows(Path(sys.argv[2])) else "other", "store")')
check "ingest by one process" 0 "128 files" "${logs[@]}" --jobs 1 --db one.db
check "ingest by four ranks on two nodes" 0 "^128 files" srun -N2 -n4 --mpi=pmi2 "${logs[@]}" --db ranks.db
check "the same store" 0 "^same store" "${same[@]}" one.db ranks.db

# Prints how many files a store has.
files=("$bin/python" -c 'import sqlite3, sys
print(sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
    .execute("SELECT COUNT(*) FROM _source").fetchone()[0])')

# kill_rank RANK STORE FILES: four ranks ingest; one is killed once the store has more files than
# that. Sets status, which is that of the killed task in Slurm.
kill_rank() {
    local job pid stored
    status=0
    timeout 120 srun -N2 -n4 --mpi=pmi2 "${logs[@]}" --db "$2" >output 2>&1 </dev/null &
    job=$!
    for _ in $(seq 400); do
        stored=$("${files[@]}" "$2" 2>/dev/null)
        [ "${stored:-0}" -gt "$3" ] && break
        sleep 0.05
    done
    for pid in $(pgrep -f "collscope ingest log logs --db $2"); do
        if grep -qsz "^SLURM_PROCID=$1\$" "/proc/$pid/environ"; then kill -9 "$pid"; fi
    done
    wait "$job" || status=$?
}

kill_rank 2 killed.db 3
note "a rank is killed: a notice" "$status" 137 "^ *notice: 1 x worker_lost"
check "a rank is killed: the same store" 0 "^same store" "${same[@]}" one.db killed.db

# The first rank is killed: what it stored is kept, and the same command goes on.
kill_rank 0 first.db 0
note "the first rank is killed: all end" "$status" 137 "task 0: Killed"
check "the first rank is killed: the same command goes on" 0 "^[0-9]+ files?: already in this run" \
    srun -N2 -n4 --mpi=pmi2 "${logs[@]}" --db first.db
check "the first rank is killed: the same store" 0 "^same store" "${same[@]}" one.db first.db

# The site kit, with a job that writes the logs of a sample's four ranks.
cat >job.sh <<JOB
file=\$(echo "\$NCCL_DEBUG_FILE" | sed "s/%h/\$(hostname)/; s/%p/\$\$/")
exec cp "$samples/rank\$SLURM_PROCID.log" "\$file"
JOB
KIT_REPLAY="--budget 0.01 --limit 3" check "site kit: submitted and done" 0 "Submitted batch job" \
    sbatch --wait --nodes=2 --ntasks-per-node=2 "$here/site-kit.sbatch" sh job.sh
cat collscope-kit-*.out >output
note "site kit: every step" 0 0 "tar.gz, .*; 0 steps failed"
tar -xOf collscope-kit-*.tar.gz --wildcards '*/replay.csv' >output
note "site kit: the job's classes measured on its four ranks" 0 0 '^Broadcast,Bfloat16,,0,4194304,8388608,1,4,1,13,.*,host,.*,ok,'

# Slurm's own end of a job may kill a replay; the next one there removes what it left.
"${replay[@]}" -n 1 >output 2>&1
left=$(find . -name '.collscope-replay-*' | wc -l)
[ "$left" -eq 0 ] || { echo "FAILED  $left folders of replays are left"; failed=$((failed + 1)); }
echo "check-slurm: $passed passed, $failed failed ($(srun --version))"
[ "$failed" -eq 0 ]
