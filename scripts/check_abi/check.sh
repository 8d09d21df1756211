#!/usr/bin/env bash
# Holds the replayer against the real GPU libraries, without a GPU: compiles native/replayer/check_abi
# against the vendors' headers, and lets the replayer load the vendors' libraries (--probe).
#
#   check.sh FOLDER REPLAYER PYTHON
#
# Downloads about 1.5 GB into FOLDER, once. Ends with a summary; fails when a check fails.
set -uo pipefail

here=$(dirname "$(realpath "$0")")
source=$(realpath "$here/../../native/replayer/check_abi")
mkdir -p "$1"
folder=$(realpath "$1")
replayer=$(realpath "$2")
python=$3
passed=()
failed=()
unchecked=()

# note STATUS TEXT: files the outcome of a check.
note() {
    if [ "$1" -eq 0 ]; then passed+=("$2"); else failed+=("$2"); fi
}

# version_in NAME PACKAGE: version of a package in what was fetched.
version_in() {
    sed -n "s/^$2 \([0-9]*:\)\?//p" "$folder/$1/packages"
}

# headers TITLE FILE COMPILER-FLAG…: one source of check_abi against headers.
headers() {
    local title=$1 file=$2
    shift 2
    g++ -std=c++20 -Wall -Wextra -fsyntax-only "$@" "$source/$file"
    note $? "headers: $title"
}

# probe TITLE WANTED-STATUS PATTERN COMMAND…: every line of PATTERN has to match the output.
probe() {
    local title=$1 wanted=$2 patterns=$3 output status=0
    shift 3
    output=$("$@" 2>&1) || status=$?
    echo "--- $title"
    echo "$output"
    if [ "$status" -ne "$wanted" ]; then
        echo "check.sh: exit status $status, expected $wanted" >&2
        note 1 "probe: $title"
        return
    fi
    while read -r pattern; do
        if ! grep -qE "$pattern" <<<"$output"; then
            echo "check.sh: no line matches: $pattern" >&2
            note 1 "probe: $title"
            return
        fi
    done <<<"$patterns"
    note 0 "probe: $title"
}

# The loader of the unpacked system runs the replayer with that system's libc; MPI is found by the
# replayer's own RUNPATH, or in the folder of the libmpi that it uses here.
mpi_lib=$(dirname "$(ldd "$replayer" | awk '/libmpi/ { print $3; exit }')")
in_root() {
    local root=$1
    shift
    "$root/usr/lib64/ld-linux-x86-64.so.2" \
        --library-path "$root/usr/lib/x86_64-linux-gnu:$mpi_lib" "$replayer" "$@"
}

gpus='^(cuda|hip) GPUs: ([1-9]|no usable GPU: .+ error (35|100)\))'

# CUDA 12 and 13 with NCCL, from their wheels. The headers need crt/ and nv/target of two more.
"$here/fetch_wheels.sh" "$folder/cu12" "$python" nvidia-cuda-runtime-cu12 nvidia-nccl-cu12 \
    nvidia-cuda-nvcc-cu12 nvidia-cuda-cccl-cu12 || note 1 "download of the CUDA 12 wheels"
"$here/fetch_wheels.sh" "$folder/cu13" "$python" nvidia-cuda-runtime nvidia-nccl-cu13 \
    nvidia-cuda-crt nvidia-cuda-cccl || note 1 "download of the CUDA 13 wheels"
for cuda in cu12 cu13; do
    [ -e "$folder/$cuda/packages" ] || continue
    includes=()
    for include in "$folder/$cuda"/nvidia/*/include{,/cccl}; do
        [ -d "$include" ] && includes+=(-isystem "$include")
    done
    libraries=$(printf '%s:' "$folder/$cuda"/nvidia/*/lib)
    runtime=$(sed -n 's/^nvidia_cuda_runtime[^ ]* //p' "$folder/$cuda/packages")
    nccl=$(version_in $cuda "nvidia_nccl_$cuda")
    headers "CUDA runtime $runtime" runtime.cpp -DCHECK_CUDA "${includes[@]}"
    headers "NCCL $nccl ($cuda), fp8 too" collectives.cpp -DCHECK_CUDA "${includes[@]}"
    probe "CUDA $runtime + NCCL $nccl ($cuda)" 0 "^cuda runtime: ([0-9]+) of \\1 functions\$
^cuda runtime: cuda ${cuda#cu}\\.
^cuda collectives: nccl $nccl,
^cuda collectives: ([0-9]+) of \\1 functions\$
^cuda collectives: unique id ok\$
$gpus" env COLLSCOPE_LIBRARY_PATH="$libraries" "$replayer" --probe --backend cuda
done

# What `bench interference` loads besides: cuBLAS, NVRTC and the driver's modules.
if "$here/fetch_wheels.sh" "$folder/cu12-compute" "$python" nvidia-cublas-cu12 nvidia-cuda-nvrtc-cu12; then
    includes=()
    for include in "$folder"/cu12{,-compute}/nvidia/*/include{,/cccl}; do
        [ -d "$include" ] && includes+=(-isystem "$include")
    done
    headers "cuBLAS $(version_in cu12-compute nvidia_cublas_cu12), NVRTC, CUDA modules" compute.cpp \
        -DCHECK_CUDA "${includes[@]}"
else
    note 1 "download of the cuBLAS and NVRTC wheels"
fi

# HIP 5.7 with RCCL: Debian 13.
if "$here/fetch_debian.sh" "$folder/trixie" trixie librccl1 libamdhip64-5 libstdc++6 -- \
    librccl-dev libamdhip64-dev; then
    root=$folder/trixie/root
    hip=$(version_in trixie libamdhip64-dev)
    rccl=$(version_in trixie librccl-dev)
    headers "HIP $hip" runtime.cpp -DCHECK_HIP -D__HIP_PLATFORM_AMD__ -isystem "$root/usr/include"
    headers "RCCL $rccl" collectives.cpp -DCHECK_HIP -D__HIP_PLATFORM_AMD__ \
        -isystem "$root/usr/include"
    if "$here/fetch_debian.sh" "$folder/trixie-rocblas" trixie -- librocblas-dev; then
        headers "rocBLAS $(version_in trixie-rocblas librocblas-dev), hipRTC $hip" compute.cpp \
            -DCHECK_HIP -DCHECK_ROCBLAS -D__HIP_PLATFORM_AMD__ -isystem "$root/usr/include" \
            -isystem "$folder/trixie-rocblas/root/usr/include"
    else
        note 1 "download of rocBLAS from Debian 13"
    fi
    probe "HIP $hip + RCCL $rccl (Debian 13)" 0 "^hip runtime: [0-9]+ of [0-9]+ functions; not there, not required: hipGetDevicePropertiesR0600\$
^hip runtime: hip ${hip%.*}\\.
^hip collectives: rccl 2\\.[0-9]+\\.[0-9]+,
^hip collectives: ([0-9]+) of \\1 functions\$
^hip collectives: unique id ok\$
$gpus" in_root "$root" --probe --backend hip
    unchecked+=("fp8 values of RCCL, and ncclInProgress: this rccl.h is older than both")
else
    note 1 "download of RCCL and HIP from Debian 13"
fi

# HIP 6: only in Debian's testing suite, without an RCCL for it, so the probe has to say that.
if "$here/fetch_debian.sh" "$folder/forky" forky libamdhip64-6 libstdc++6 -- libamdhip64-dev; then
    root=$folder/forky/root
    hip=$(version_in forky libamdhip64-dev)
    headers "HIP $hip" runtime.cpp -DCHECK_HIP -D__HIP_PLATFORM_AMD__ -isystem "$root/usr/include"
    headers "hipRTC $hip" compute.cpp -DCHECK_HIP -D__HIP_PLATFORM_AMD__ -isystem "$root/usr/include"
    probe "HIP $hip alone (Debian testing)" 5 "^hip runtime: ([0-9]+) of \\1 functions\$
^hip: unusable: RCCL: librccl.so.1 not found\\." in_root "$root" --probe --backend hip
    unchecked+=("RCCL built for HIP 6: no package found")
else
    unchecked+=("HIP 6: Debian's testing suite could not be read")
fi
# HIP 7 and RCCL 2.30: AMD's Python bindings declare what the headers do; they hold no library.
bindings=$folder/rocm-bindings
if "$here/fetch_wheels.sh" "$bindings" "$python" rocm-bindings-core rocm-bindings-hip \
    rocm-bindings-systems && versions=$("$python" "$here/headers_of_bindings.py" "$bindings"); then
    read -r hip rccl <<<"$versions"
    for file in runtime collectives; do
        headers "HIP $hip, RCCL $rccl (rocm-bindings): $file" $file.cpp -DCHECK_HIP \
            -D__HIP_PLATFORM_AMD__ -isystem "$bindings/include"
    done
    unchecked+=("libraries of HIP 7 and RCCL 2.30: no package known")
else
    note 1 "download of rocm-bindings"
fi
unchecked+=("anything that runs on an AMD GPU: communicators, streams, events, graphs, results")

echo
echo "Checked:"
printf '  ok      %s\n' "${passed[@]}"
[ ${#failed[@]} -eq 0 ] || printf '  FAILED  %s\n' "${failed[@]}"
echo "Not checked:"
printf '  %s\n' "${unchecked[@]}"
echo "${#passed[@]} passed, ${#failed[@]} failed"
[ ${#failed[@]} -eq 0 ]
