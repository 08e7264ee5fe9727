#!/usr/bin/env bash
# Writes the Delta and Iceberg tables of tests/golden/tables anew, by Spark in an environment below build/ (1 GB;
# `make clean` removes it). Spark fetches the jars of both formats once.
#
#   deploy/make-tables.sh                   All tables.
#   deploy/make-tables.sh delta_vectors     Those named.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly venv=build/spark-tables

"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4 'pyarrow>=19' 'pandas>=2.2,<3'
JAVA_HOME=$(deploy/setup.sh --java-home)
export JAVA_HOME SPARK_LOCAL_IP=127.0.0.1
exec "$venv/bin/python" -m tests.golden.tables.write "$@"
