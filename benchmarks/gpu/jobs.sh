#!/usr/bin/env bash
# Steps and traces of the jobs of job_models.py under several settings, into OUT: about 15 minutes
# on four H200. ONLY=wide,sp takes some jobs; RANKS=2 two GPUs.
#
#   benchmarks/gpu/jobs.sh OUT
#   python benchmarks/prediction.py OUT
set -euo pipefail
out=${1:?folder}
only=${ONLY:-tpdp,pp,moe,acc,wide,fsdp_small,hsdp,sp,zero,gpipe,graph}
here=$(dirname "$0")
mkdir -p "$out"

run() { # SETTING STYLES [NAME=VALUE ...]; a job that fails does not keep the others out
    local setting=$1 styles=$2
    shift 2
    env SETTING="$setting" "$@" torchrun --nproc_per_node "${RANKS:-4}" "$here/jobs.py" "$out" \
        --only "$only" --traces "$styles" | tee -a "$out/log.txt" || echo "$setting: ended with status $?"
}

for styles in scheduled_light scheduled_full ""; do
    run default "$styles"
    run ch2 "$styles" NCCL_MAX_CTAS=2
    run ll "$styles" NCCL_PROTO=LL
done
sed -n 's/^STEP //p' "$out/log.txt" >"$out/steps.jsonl"
