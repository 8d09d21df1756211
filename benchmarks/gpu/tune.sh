#!/usr/bin/env bash
# `collscope tune` from bad settings, and a job before and after. Needs collscope in the path.
#
#   RANKS=4 LIBRARY=/path/libnccl.so.2 benchmarks/gpu/tune.sh JOB.py OUT     about 6 minutes
#
# JOB.py runs under torchrun with the arguments `blocking FOLDER` and prints a line
# `STEP {"median_ms": …}`; its collectives are AllReduces of 2^12, 2^18, 2^22 and 2^25 bf16 elements,
# an AllGather and a ReduceScatter of 2^22 for each rank.
set -euo pipefail
job=$(realpath "${1:?job}")
out=$(realpath -m "${2:?folder}")
table=$(realpath "$(dirname "$0")/tune_table.py")
ranks=${RANKS:-2}
library=(${LIBRARY:+--library "$(realpath "$LIBRARY")"})
mkdir -p "$out"
cd "$out"

{
    printf 'collscope-plan 1\nmode unique\nnranks %d\ncomm 0 0-%d\n' "$ranks" $((ranks - 1))
    class=0
    for count in 4096 262144 4194304 33554432; do
        echo "class $class op=AllReduce datatype=Bfloat16 redop=Sum count=$count in_place=1 comms=0"
        class=$((class + 1))
    done
    echo "class 4 op=AllGather datatype=Bfloat16 count=4194304 comms=0"
    echo "class 5 op=ReduceScatter datatype=Bfloat16 redop=Sum count=4194304 comms=0"
} > blocking.plan

steps() { # NAME: the job in this environment; its settings are in NAME.nccl.*
    NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,TUNING NCCL_DEBUG_FILE="$1.nccl.%p" \
        torchrun --nproc-per-node "$ranks" --master-port $((29500 + RANDOM % 1000)) \
        "$job" blocking . > "$1.step" 2> "$1.err" || echo "$1: the job failed, see $1.err"
}

steps default
# NCCL 2.28 refuses NCCL_ALGO=Tree for AllGather: only the operation that has trees is forced.
for start in NCCL_ALGO=allreduce:tree NCCL_PROTO=LL NCCL_MAX_CTAS=2; do
    name=${start%%=*}
    (export "$start" && steps "$name-bad")
    step=$(sed -n 's/.*"median_ms": \([0-9.]*\).*/\1/p' "$name-bad.step")
    collscope tune --plan blocking.plan "${library[@]}" --env "$start" ${step:+--step-ms "$step"} \
        --db tune.db --run "$name" --label "$name " --time-limit "${LIMIT:-80}" --out "$name" > "$name.txt" \
        || echo "$name: tune ended with status $?"
    # shellcheck disable=SC1091
    (export "$start" && if [ -f "$name/tuned.env" ]; then . "$name/tuned.env"; fi && steps "$name-tuned")
done
python3 "$table" . NCCL_ALGO NCCL_PROTO NCCL_MAX_CTAS
