#!/usr/bin/env bash
# Every wheel of dist/ in a clean environment of its own Python, without a compiler in the path:
# reads a sample, reports it as text and as a page, replays it on two ranks of the host backend.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for wheel in dist/*.whl; do
    minor=$(sed -E 's/.*-cp3([0-9]+)-.*/\1/' <<<"$wheel")
    python=$(command -v "python3.$minor" || ls -d "$HOME"/.pyenv/versions/3."$minor".*/bin/python3 2>/dev/null | tail -n 1 || true)
    [ -n "$python" ] || { echo "$wheel: no Python 3.$minor here, not tried"; continue; }
    "$python" -m venv "$work/$minor"
    bin=$work/$minor/bin
    (
        export PATH=$bin:/nowhere CC=/bin/false CXX=/bin/false COLLSCOPE_DB=$work/$minor.db
        "$bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$wheel"
        "$bin/collscope" ingest log samples/nccl/mixed >"$work/log"
        "$bin/collscope" report >>"$work/log"
        "$bin/collscope" report --format html -o "$work/$minor.html"
        "$bin/collscope" replay --backend host --sweep allreduce:2 --budget 0.01 -n 2 \
            --csv "$work/$minor.csv" >>"$work/log" 2>&1 || { echo "replay:"; "$bin/collscope" doctor; } >>"$work/log" 2>&1
    ) || { cat "$work/log"; echo "$wheel: FAILED"; exit 1; }
    rows=$(grep -c '^AllReduce' "$work/$minor.csv" 2>/dev/null || true)
    echo "$(basename "$wheel"): installed without a compiler; reads, reports, draws a page; ${rows:-0} rows replayed"
done
