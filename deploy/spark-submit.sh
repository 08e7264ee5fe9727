#!/usr/bin/env bash
# Runs a command of Gnomon that needs Spark (build, load, dedup) through spark-submit.
#
#   deploy/spark-submit.sh build /lake/crawl /indexes/crawl --key url                    On this machine.
#   MASTER=spark://head:7077 deploy/spark-submit.sh build s3://lake/crawl s3://indexes/crawl --key url
#   MASTER=yarn deploy/spark-submit.sh dedup /indexes/crawl /incoming/2026-01-07
#
# MASTER          the cluster (local[*])
# SPARK_SUBMIT    the program (spark-submit of the PATH)
# DRIVER_PYTHON   the interpreter that has Gnomon installed (python3)
# PYSPARK_PYTHON  the executors' interpreter, with Gnomon's dependencies (DRIVER_PYTHON): docs/operations/cluster.md
# SPARK_CONF      more settings, a name=value on each line
set -euo pipefail

if (($# == 0)); then
    echo "$0: expected a command, as build /lake/crawl /indexes/crawl --key url" >&2
    exit 2
fi
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly folder master=${MASTER:-local[*]} submit=${SPARK_SUBMIT:-spark-submit}
readonly driver=${DRIVER_PYTHON:-python3} executor=${PYSPARK_PYTHON:-${DRIVER_PYTHON:-python3}}

settings=(
    --conf "spark.pyspark.driver.python=$driver"
    --conf "spark.pyspark.python=$executor"
    --conf spark.sql.session.timeZone=UTC
)
while IFS= read -r line; do
    if [[ -n $line ]]; then settings+=(--conf "$line"); fi
done <<<"${SPARK_CONF:-}"
# Tasks on this machine need no address for other machines; without this Spark asks the network for a name.
if [[ $master == local* ]]; then export SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1}; fi

exec "$submit" --master "$master" "${settings[@]}" "$folder/gnomon_submit.py" "$@"
