#!/usr/bin/env bash
# Runs tests/base/kernel_fuzz.py with the compiled loops under AddressSanitizer and UBSan: deploy/fuzz-kernel.sh SECONDS SEED.
# Everything is built in a temporary folder; the build of the source tree is not touched.
set -euo pipefail
seconds=${1:-300} seed=${2:-$RANDOM}
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/source"
cd "$root"
tar --exclude='*.so' --exclude=__pycache__ -cf - pyproject.toml README.md LICENSE MANIFEST.in \
    btree gnomon indexer service | tar -xf - -C "$work/source"
flags="-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined"
CC=gcc CFLAGS="$flags" LDFLAGS="-fsanitize=address,undefined" \
    "$root/.venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$work/site" "$work/source"
echo "seed $seed"
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
    PYTHONMALLOC=malloc PYTHONPATH="$work/site" "$root/.venv/bin/python" tests/base/kernel_fuzz.py "$seconds" "$seed"
