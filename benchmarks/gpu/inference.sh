#!/usr/bin/env bash
# Inference on two GPUs: collectives in graphs with their sizes (job_sizes.py), `bench backends`
# beside the steps of jobs (backends_job.py), and beside its peer (backends_peer.py).
# OUT/inference.tar.xz and OUT/inference.txt; about 220 seconds; needs PyTorch.
#
#   benchmarks/gpu/inference.sh OUT [END [MODELS]]
#
# END: seconds after which nothing further begins. MODELS: as of backends_job.py, in place of the
# first ones; then job_sizes.py is left out, and the peer has the tool's compute.
set -uo pipefail
out=$(realpath "${1:?folder}") end=${2:-205}
here=$(dirname "$(realpath "$0")")
worker=$here/../../collscope/bench/backends_worker.py
work=$(mktemp -d)
models=${3:-"mlp:5120:28:Bfloat16:4,24,96,200 llama:3072:16:Float16:2,40,128,320 mlp:2048:32:Float32:8,64,256"}
[ -z "${3:-}" ] || export SAME=1
begin=$SECONDS

run() { # LIMIT PROGRAM ARGUMENTS: a program that fails does not keep the others out
    local limit=$1 left=$((end - SECONDS + begin))
    shift
    if ((left < 0)); then
        echo "no time left: $(basename "$1")"
        return
    fi
    timeout -k 5 "$limit" torchrun --standalone --nproc-per-node 2 "$@" 2>&1 | grep -v -i warn
    local status=${PIPESTATUS[0]}
    echo "== $(basename "$1"): status $status after $((SECONDS - begin)) s"
}

bench() { # NUMBER
    run 60 "$worker" --points "$(python3 "$here/backends_job.py" --points "$models")" \
        --csv "$work/backends.csv" --turns 7 --round "$1" $([ "$1" = 0 ] || echo --append)
}

{
    nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv
    [ -n "${SAME:-}" ] || run 50 "$here/job_sizes.py" "$work/sizes" 30
    bench 0
    run 70 "$here/backends_job.py" "$work/steps" "$models" 45
    bench 1
    run 80 "$here/backends_peer.py" "$work/peer.csv" "" 10 50
    bench 2
    nvidia-smi --query-gpu=clocks.sm,temperature.gpu --format=csv
} 2>&1 | tee "$out/inference.txt"
tar -C "$work" -cJf "$out/inference.tar.xz" .
ls -la "$out"
