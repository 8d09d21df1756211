#!/usr/bin/env bash
# The recorder on GPUs: jobs recorded beside NCCL's log and Kineto traces, and what each level costs.
# Packs what came: OUT/recorder.tar.xz. About five minutes on two H200; needs PyTorch, cmake, g++.
#
#   benchmarks/gpu/recorder.sh OUT
set -uo pipefail
out=$(realpath "${1:?folder}")
here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/../..")
work=$(mktemp -d)
begin=$SECONDS

g++ -std=c++20 -O2 -DNDEBUG -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -shared \
    -Wl,-z,nodelete -Wl,--no-undefined -static-libstdc++ -static-libgcc \
    "-Wl,--version-script=$root/native/recorder/exports.map" "$root"/native/recorder/*.cpp \
    -o "$work/libcollscope-recorder.so" -lpthread -ldl || exit 1
echo "built after $((SECONDS - begin)) s"
plugin=$work/libcollscope-recorder.so

run() { # SECONDS CASE FOLDER [NAME=VALUE ...]; a job that fails does not keep the others out
    local limit=$1 name=$2 folder=$3
    shift 3
    mkdir -p "$folder"
    timeout "$limit" env COLLSCOPE_RECORDER_DIR="$folder" "$@" \
        torchrun --nproc_per_node "${RANKS:-2}" "$here/recorder.py" "$name" "$folder" \
        >"$folder/stdout.txt" 2>&1
    echo "$name $(basename "$folder"): status $? after $((SECONDS - begin)) s"
    sed -n 's/^COST //p' "$folder/stdout.txt" | tee -a "$work/cost.jsonl"
}

recorded() { # CASE LEVEL
    run 60 "$1" "$work/$1-$2" NCCL_PROFILER_PLUGIN="$plugin" COLLSCOPE_RECORDER_LEVEL="$2" \
        NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,P2P,SHM,GRAPH,TUNING,COLL,PROFILE \
        NCCL_DEBUG_FILE="$work/$1-$2/log.%h.%p"
}

nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv >"$work/gpus.csv"
recorded mixed all
recorded late all
recorded graph all
recorded ddp all
recorded fsdp sampled
recorded mixed proxy
for turn in 1 2; do
    run 60 small "$work/small-none-$turn" SETTING=none
    run 60 small "$work/small-loaded-$turn" SETTING=loaded NCCL_PROFILER_PLUGIN="$plugin"
done
run 90 cost "$work/cost-loaded" SETTING=loaded NCCL_PROFILER_PLUGIN="$plugin"
run 60 cost "$work/cost-none" SETTING=none

rm "$plugin"
find "$work" -type f -exec ls -l {} +
tar -C "$work" -cf - . | xz -6 -T8 >"$out/recorder.tar.xz"
ls -l "$out"
