#!/usr/bin/env bash
# Runs tests on another version of Python, in a separate environment below build/ (1.5 GB; `make clean` removes it).
#
#   deploy/try-python.sh 3.13                        The newest versions of all packages: the tests of `make quick`
#                                                    in one process, then builds and loads in Spark.
#   deploy/try-python.sh 3.11 lowest                 The lowest versions that pyproject.toml allows to users.
#   deploy/try-python.sh 3.13 lowest tests/shadow    The tests named, all of them.
#
# UV names the program uv (.venv/bin/uv, which `make setup` installs), PYTHON an interpreter of this version that is not on the PATH.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly version=${1:-} which=${2:-highest} uv=${UV:-.venv/bin/uv}
if [[ ! $version =~ ^3\.[0-9]+(\.[0-9]+)?$ ]]; then
    echo "$0: expected a version of Python, as 3.13; found '$version'" >&2
    exit 2
fi
if [[ $which != highest && $which != lowest ]]; then
    echo "$0: expected highest or lowest, found '$which'" >&2
    exit 2
fi
shift $(($# < 2 ? $# : 2))
readonly venv=build/python-$version-$which

"$uv" venv --quiet --clear --python "${PYTHON:-$version}" "$venv"
readonly python=$venv/bin/python
wanted=()
if [[ $which == lowest ]]; then
    # The packages that pyproject.toml names for users have their lowest versions with a wheel for this Python (pyspark has
    # none). What they need, and the tools of developers, have the newest.
    "$uv" pip compile --quiet --python "$python" --resolution lowest-direct --only-binary :all: --no-binary pyspark \
        --no-header --annotation-style line --extra spark --extra service --extra delta --extra iceberg pyproject.toml \
        | grep -F '(pyproject.toml)' >"$venv/lowest.txt"
    wanted=(--constraints "$venv/lowest.txt")
fi
"$uv" pip install --quiet --python "$python" "${wanted[@]}" --editable '.[spark,service,delta,iceberg,dev]'
"$uv" pip freeze --quiet --python "$python"

JAVA_HOME=$(deploy/setup.sh --java-home)
export JAVA_HOME SPARK_LOCAL_IP=127.0.0.1 GNOMON_TEST_PROFILE=${GNOMON_TEST_PROFILE:-quick}
if (($#)); then exec "$python" -m pytest --quiet "$@"; fi
failed=0
# pyspark 3.5 imports distutils, which Python 3.11 calls deprecated.
readonly old='ignore:The distutils package is deprecated:DeprecationWarning'
"$python" -m pytest --quiet -W "$old" -m 'not (spark or store or browser or process or slow or nightly)' || failed=1
# pyspark 4.0 leaves its sockets to the garbage collector.
"$python" -m pytest --quiet -W "$old" -W 'ignore:unclosed <socket:ResourceWarning' tests/indexer/build/test_job.py \
    tests/indexer/join/test_load_rows.py || failed=1
exit $failed
