#!/usr/bin/env bash
# Every wheel of dist/ in clean environments of the Pythons that it serves, without a compiler and
# without MPI: the README's three commands, a page, and the output of doctor. Then with the extra: a
# replay on two ranks of the host backend.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/wheels/pythons.sh
samples=$PWD/samples
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

try() { # WHEEL PYTHON FOLDER
    local bin=$3/bin
    "$2" -m venv "$3"
    cd "$3"
    export PATH=$bin:/nowhere CC=/bin/false CXX=/bin/false COLLSCOPE_DB=$3/job.db
    pip install --quiet --disable-pip-version-check --only-binary :all: "$1"
    collscope ingest trace "$samples/traces/ringll"
    collscope report --system h200
    collscope predict --system h200
    collscope report --format html -o page.html
    collscope replay --backend host --sweep allreduce:2 -n 2 && return 1
    pip install --quiet --disable-pip-version-check --only-binary :all: "collscope[replay]"
    collscope doctor
    collscope replay --backend host --sweep allreduce:2 --budget 0.01 -n 2 --csv rows.csv
}

for wheel in "$PWD"/dist/*.whl; do
    case $wheel in
    *-abi3-*) minors="12 13 14" ;;
    *) minors=$(sed -E 's/.*-cp3([0-9]+)-.*/\1/' <<<"$wheel") ;;
    esac
    for minor in $minors; do
        name="$(basename "$wheel"), Python 3.$minor"
        python=$(python_of "$minor") || { echo "$name: not here, not tried"; continue; }
        log=$work/$minor.log
        # A shell of its own: in a condition `set -e` does not hold.
        (set -e; try "$wheel" "$python" "$work/$minor") >"$log" 2>&1 & wait $! && status=0 || status=$?
        [ "$status" = 0 ] || { cat "$log"; echo "$name: FAILED"; exit 1; }
        grep -q "pip install 'collscope\[replay\]'" "$log"
        grep -q "^Step time" "$log"
        rows=$(grep -c '^AllReduce' "$work/$minor/rows.csv")
        echo "$name: without a compiler and MPI it reads, reports, predicts and draws a page; with the extra it replays ($rows row)"
    done
done
