#!/usr/bin/env bash
# The recorder on GPUs: jobs recorded beside NCCL's log and Kineto traces, and what each level costs,
# with PyTorch's own NCCL and others that are preloaded. All that came is in OUT/recorder.tar.xz.
# About three minutes a library on two H200; needs PyTorch, g++.
#
#   benchmarks/gpu/recorder.sh OUT torch [NAME=LIBNCCL ...] [NAME=LIBNCCL:CASE,CASE ...]
#
# END: the seconds after which no further case begins.
set -uo pipefail
out=$(realpath "${1:?folder}") || exit 1
shift
here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/../..")
work=$(mktemp -d)
begin=$SECONDS
all=mixed/all,late/all,graph/all,ddp/all,fsdp/all,cost,small,kernels,turns,fsdp/sampled,mixed/proxy

plugin=$work/libcollscope-recorder.so
g++ -std=c++20 -O2 -DNDEBUG -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -shared \
    -Wl,-z,nodelete -Wl,--no-undefined -static-libstdc++ -static-libgcc \
    "-Wl,--version-script=$root/native/recorder/exports.map" "$root"/native/recorder/*.cpp \
    -o "$plugin" -lpthread -ldl || exit 1
echo "built after $((SECONDS - begin)) s"
nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv | tee "$work/gpus.csv"

run() { # SECONDS RANKS CASE FOLDER LIBRARY [NAME=VALUE ...]; a job that fails does not keep the others out
    local limit=$1 ranks=$2 name=$3 folder=$4 library=$5
    shift 5
    if ((SECONDS - begin > ${END:-100000})); then
        echo "$name $folder: no time left"
        return
    fi
    mkdir -p "$folder"
    [ "$library" = torch ] || set -- LD_PRELOAD="$library" "$@"
    timeout -k 5 "$limit" env COLLSCOPE_RECORDER_DIR="$folder" NCCL_PROFILER_PLUGIN="$plugin" "$@" \
        torchrun --standalone --nproc_per_node "$ranks" "$here/recorder.py" "$name" "$folder" \
        >"$folder/stdout.txt" 2>&1
    echo "$name ${folder#"$work/"}: status $? after $((SECONDS - begin)) s"
    sed -n 's/^COST //p' "$folder/stdout.txt" | tee -a "$work/cost.jsonl" | cut -c1-700
}

of_library() { # NAME LIBRARY CASES
    local folder=$work/$1 library=$2 one name level
    for one in $(tr , ' ' <<<"$3"); do
        name=${one%/*} level=${one#*/}
        case $one in
        cost | small | kernels) run 120 "${RANKS:-2}" "$name" "$folder/$name" "$library" SETTING="$1" ;;
        turns) run 150 10 turns "$folder/turns" "$library" SETTING="$1" ;;
        *)
            run 90 "${RANKS:-2}" "$name" "$folder/$name-$level" "$library" \
                COLLSCOPE_RECORDER_LEVEL="$level" \
                NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,P2P,SHM,GRAPH,TUNING,COLL,PROFILE \
                NCCL_DEBUG_FILE="$folder/$name-$level/log.%h.%p"
            ;;
        esac
    done
}

for argument in "$@"; do
    library=${argument%%:*}
    [ "$library" = "$argument" ] && cases=$all || cases=${argument#*:}
    of_library "${library%%=*}" "${library#*=}" "$cases"
done
# Long recordings of loops: the lines of cost have all of them.
find "$work" \( -path '*/cost/*' -o -path '*/small/*' -o -path '*/turns/*' \) -name '*.collrec' \
    -size +400k -delete
rm "$plugin"
tar -C "$work" -cf - . | xz -6 -T0 >"$out/recorder.tar.xz"
ls -l "$out"
