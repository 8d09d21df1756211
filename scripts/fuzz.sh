#!/usr/bin/env bash
# fuzz.sh BUILD CMAKE NINJA MPICXX ITERATIONS SEED LOG...: fuzz the log scanner under ASan and UBSan.
#
# With libFuzzer where clang++ has it: guided by the scanner's coverage, from the logs cut into
# pieces; what it found interesting stays in BUILD/corpus for the next time. Else with the project's
# own driver, which mutates the logs blindly. COLLSCOPE_FUZZ_CXX names another clang++.
set -euo pipefail
build=$1 cmake=$2 ninja=$3 mpicxx=$4 iterations=$5 seed=$6
shift 6

mkdir -p "$build"
clang=${COLLSCOPE_FUZZ_CXX:-clang++}
empty='extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
if echo "$empty" | "$clang" -x c++ -fsanitize=fuzzer,address,undefined - -o "$build/probe" 2>"$build/probe.log"; then
    kind=libfuzzer compiler=("-DCMAKE_CXX_COMPILER=$clang")
else
    kind=own compiler=()
    echo "fuzz: $clang cannot link libFuzzer ($build/probe.log): inputs are not guided by coverage"
fi
"$cmake" -S . -B "$build/$kind" -G Ninja -DCMAKE_MAKE_PROGRAM="$ninja" \
    -DMPI_CXX_COMPILER="$mpicxx" -DCOLLSCOPE_SANITIZE=ON -DCOLLSCOPE_NATIVE_TESTS=ON \
    ${compiler[@]+"${compiler[@]}"} >"$build/configure.log" || { cat "$build/configure.log"; exit 1; }
"$cmake" --build "$build/$kind" --target logscan_fuzz
fuzz=$build/$kind/native/logscan/logscan_fuzz
if [ "$kind" = own ]; then
    exec "$fuzz" "$iterations" "$seed" "$@"
fi
mkdir -p "$build/corpus" "$build/seeds"
for log in "$@"; do
    split -C 2000 "$log" "$build/seeds/$(echo "$log" | tr / _)."
done
exec "$fuzz" -runs="$iterations" -seed="$seed" -max_len=4096 -artifact_prefix="$build/" \
    "$build/corpus" "$build/seeds"
