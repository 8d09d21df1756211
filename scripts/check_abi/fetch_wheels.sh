#!/usr/bin/env bash
# Unpacks wheels of NVIDIA into a folder without installing them.
#
#   fetch_wheels.sh FOLDER PYTHON PACKAGE…
#
# Leaves FOLDER/nvidia/*/{lib,include} and FOLDER/packages; does nothing when there.
set -euo pipefail

folder=$(realpath -m "$1")
python=$2
shift 2
[ -e "$folder/packages" ] && exit 0

rm -rf "$folder"
mkdir -p "$folder/wheels"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$folder/wheels" "$@"
for wheel in "$folder"/wheels/*.whl; do
    "$python" -m zipfile -e "$wheel" "$folder"
    basename "$wheel" | cut -d- -f1,2 | tr - ' '
done >"$folder/packages.new"
rm -r "$folder/wheels"
mv "$folder/packages.new" "$folder/packages"
