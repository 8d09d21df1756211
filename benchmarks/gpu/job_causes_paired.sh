#!/usr/bin/env bash
# Jobs with causes switched on and off, recorded on two GPUs and packed: at most LIMIT seconds.
#
#   benchmarks/gpu/job_causes_paired.sh OUT [SET]
#
# OUT/SET-1.tar and SET-2.tar hold NAME.1.tar.xz of each case; the first has truth.jsonl, too.
set -euo pipefail
out=${1:?folder}
set=${2:-first}
limit=${LIMIT:-500}
here=$(dirname "$0")
packing=50
work=$(mktemp -d)
mkdir -p "$out"
out=$(realpath "$out")
timeout --signal KILL $((limit - packing)) \
    python3 -u "$here/job_causes_paired.py" "$work" --set "$set" \
    --seconds $((limit - packing - 15)) 2>&1 |
    tee "$work/log.txt" || echo "recording ended with status ${PIPESTATUS[0]}"
touch "$work/truth.jsonl"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader >"$work/gpus.txt" || true
lscpu >"$work/cores.txt"
cd "$work"
find . -maxdepth 1 -name '*.tar' -print0 |
    xargs -0 -P "$(nproc)" -n 1 timeout $((packing + 30)) xz -9 -T1 || echo "not all were packed"
# Two files below 16 MiB. The smallest come first, each into the emptier file: a whole case is left
# out only where its traces are large.
sizes=(100000 0)
first=(truth.jsonl log.txt gpus.txt)
second=(cores.txt)
for file in $(ls -rS -- *.tar.xz); do
    size=$(stat -c %s "$file")
    if ((sizes[0] <= sizes[1])); then to=0; else to=1; fi
    if ((sizes[to] + size > 16500000)); then
        echo "not kept, there is no room: $file, $size bytes"
        continue
    fi
    sizes[to]=$((sizes[to] + size + 1024))
    if ((to == 0)); then first+=("$file"); else second+=("$file"); fi
done
tar cf "$out/$set-1.tar" "${first[@]}"
tar cf "$out/$set-2.tar" "${second[@]}"
ls -l "$out"
cat gpus.txt
