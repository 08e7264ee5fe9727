#!/usr/bin/env bash
# Runs tests on another version of Spark, in a separate environment below build/ (1 GB; `make clean` removes it).
#
#   deploy/try-spark.sh 4.1                                              The tests of the Spark jobs.
#   PYTHON=python3.12 deploy/try-spark.sh 4.2.1 tests/end_to_end/test_cluster.py    Those named, with another Python.
#   JAVA_HOME=/opt/jdk-25 deploy/try-spark.sh 4.3                                   With another Java.
#   PYSPARK_SUBMIT_ARGS='--packages org.apache.spark:spark-avro_2.13:4.1.1 pyspark-shell' \
#       deploy/try-spark.sh 4.1.1 tests/indexer/datasource/test_index_table.py                 With spark-avro in the session.
#   deploy/try-spark.sh 3.5                          Python 3.11 only; bucketed tables need spark-avro_2.12:3.5.7 as above.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if (($# == 0)); then
    echo "$0: expected a version of Spark, as 4.1" >&2
    exit 2
fi
readonly spark=$1 venv=build/spark-$1
shift
if [[ $spark == *.*.* ]]; then wanted="pyspark==$spark"; else wanted="pyspark==$spark.*"; fi

"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check "$wanted" --editable '.[spark,service,dev]'
JAVA_HOME=$(deploy/setup.sh --java-home)
export JAVA_HOME SPARK_LOCAL_IP=127.0.0.1
# Older versions of pyspark leave sockets open: their warnings are not errors of Gnomon.
exec "$venv/bin/python" -m pytest -o filterwarnings=default "${@:-tests/indexer}"
