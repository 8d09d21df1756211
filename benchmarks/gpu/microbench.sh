#!/usr/bin/env bash
# Copies, pairs and interference on the GPUs of one host, into OUT. Needs collscope in the path.
#
#   RANKS=4 LIBRARY=/path/libnccl.so.2 benchmarks/gpu/microbench.sh OUT     about 3 minutes on four GPUs
set -euo pipefail
out=${1:?folder}
ranks=${RANKS:-2}
library=(${LIBRARY:+--library "$(realpath "$LIBRARY")"})
mkdir -p "$out"
cd "$out"

run() { # what fails in part has kept the rest, and does not keep the others out
    collscope bench "$@" || echo "bench $1: ended with status $?"
}

run memcpy --only peer,ipc --sizes 64K,1M..1G*16 --budget 0.03 --db bench.db --csv copies.csv
run p2p -n "$ranks" "${library[@]}" --budget 0.05 --db bench.db --csv p2p.csv
for compute in kernel gemm; do
    run interference -n "$ranks" "${library[@]}" --sweep allreduce:256M --compute "$compute" \
        --channels 1,2,4,8,16 --rounds 2 --budget 0.4 --db bench.db --run "$compute" --csv "$compute.csv"
done
run interference -n "$ranks" "${library[@]}" --sweep allgather,sendrecv:1M,16M,256M \
    --compute kernel --budget 0.4 --db bench.db --run sizes --csv sizes.csv
