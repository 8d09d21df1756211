#!/usr/bin/env bash
# A first round of each fault; where it works, the rest. Packs what it recorded: OUT/hangs.tar.xz.
set -euo pipefail
out=${1:?folder}
here=$(dirname "$0")
python3 "$here/job_hangs.py" "$out" --cases "${FAULTS:-17}" --at-once 9 2>&1 | tee "$out.log"
if [ "$(grep -c '"reached": true' "$out/truth.jsonl")" -lt 10 ]; then
    exit 1
fi
python3 "$here/job_hangs.py" "$out" --cases "${CASES:-238}" --first "${FAULTS:-17}" --at-once "${AT_ONCE:-14}" --seconds "${SECONDS_LEFT:-330}" >>"$out.log" 2>&1
(cd "$out" && tar cf - ./* | xz -9e -T8 >../hangs.tar.xz)
