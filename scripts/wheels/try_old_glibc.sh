#!/usr/bin/env bash
# The native parts of a wheel on Debian bullseye's glibc (2.31), in a chroot made by debootstrap.
#
# Bullseye has no Python of 3.10 or later, so what is tried is what depends on the C library: both
# programs run, with MPI of the mpich wheel, and the extension modules are loaded by name.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=${COLLSCOPE_OLD_ROOT:-$(mktemp -d)}
[ -e "$root/bin/sh" ] || debootstrap --variant=minbase --include=python3 bullseye "$root" >"$root.log" 2>&1 ||
    { tail -n 5 "$root.log"; exit 1; }
wheel=$(ls dist/*.whl | head -n 1)
rm -rf "$root/try" && mkdir "$root/try"
python3 -m zipfile -e "$wheel" "$root/try"
python3 -m pip download --quiet --no-deps --only-binary :all: -d "$root/try/mpi" mpich
python3 -m zipfile -e "$(ls "$root"/try/mpi/*.whl)" "$root/try/mpi/tree"
lib=$(dirname "$(find "$root/try/mpi/tree" -name 'libmpi.so.12' | head -n 1)")
chmod +x "$root"/try/collscope/_bin/*
chroot "$root" /bin/sh -c "
    ldd --version | head -n 1
    export LD_LIBRARY_PATH=${lib#"$root"}
    /try/collscope/_bin/collscope-replayer --version
    /try/collscope/_bin/collscope-microbench --version
    python3 - <<'P'
import ctypes, glob, os
for path in sorted(glob.glob('/try/collscope/*.so') + glob.glob('/try/collscope/_lib/*.so')):
    try:
        ctypes.CDLL(path, mode=os.RTLD_LAZY)
        print(os.path.basename(path), 'loads')
    except OSError as error:  # symbols of a newer CPython are no fault of the C library
        told = str(error)
        print(os.path.basename(path), 'C library suffices' if 'undefined symbol: _Py' in told or 'undefined symbol: Py' in told else told)
P
"
