#!/usr/bin/env bash
# fuzz.sh BUILD CMAKE NINJA MPICXX ITERATIONS SEED SCANNER FILE...: fuzz a scanner under ASan, UBSan.
#
# SCANNER is a folder of native/ with a fuzz.cpp, FILE what it reads: a log, say. With libFuzzer where clang++
# has it: guided by the scanner's coverage, from the files cut into pieces; what it found interesting
# stays in BUILD/SCANNER.corpus for the next time. Else with the project's own driver, which mutates
# the files blindly. COLLSCOPE_FUZZ_CXX names another clang++.
set -euo pipefail
build=$1 cmake=$2 ninja=$3 mpicxx=$4 iterations=$5 seed=$6 scanner=$7
shift 7

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
"$cmake" --build "$build/$kind" --target "${scanner}_fuzz"
fuzz=$build/$kind/native/$scanner/${scanner}_fuzz
if [ "$kind" = own ]; then
    exec "$fuzz" "$iterations" "$seed" "$@"
fi
mkdir -p "$build/$scanner.corpus" "$build/$scanner.seeds"
for file in "$@"; do
    split -C 2000 "$file" "$build/$scanner.seeds/$(echo "$file" | tr / _)."
done
exec "$fuzz" -runs="$iterations" -seed="$seed" -max_len=4096 -artifact_prefix="$build/" \
    "$build/$scanner.corpus" "$build/$scanner.seeds"
