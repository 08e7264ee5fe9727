#!/usr/bin/env bash
# Writes tests/golden/dione_tables anew: tables that Dione's own job indexes. Spark comes into an environment below
# build/ (1 GB; `make clean` removes it), spark-avro and parquet-avro by Maven.
#
#   DIONE=checkout deploy/make-dione-tables.sh                The tables. Dione's modules in it are built with Maven.
#   DIONE=checkout deploy/make-dione-tables.sh prove FILE     Asks Dione's readers for each key of index tables.
#   DIONE=checkout deploy/make-dione-tables.sh takeover       Takes Dione's tables over from the catalog that its job wrote to.
#   DIONE=checkout deploy/make-dione-tables.sh types          Compares Dione and Gnomon by format and by type of key.
#   DIONE=checkout deploy/make-dione-tables.sh speed          Compares their costs.
#
# DIONE may also be a folder of Dione's compiled classes. FILE has a line for each table: its name, a tab, the statement
# that declares it (gnomon export-dione prints it); first the data tables, then those of the indexes.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly build=$PWD/build/dione venv=$PWD/build/dione/venv
# Entries name whole paths, so all tables ever checked in name this folder.
readonly folder=${FOLDER:-/var/tmp/gnomon-dione}
readonly spark=3.5.3 parquet=1.13.1  # as in Dione's pom.xml; its files are judged by Avro 1.11 only

: "${DIONE:?expected a checkout of Dione, or a folder of its classes}"
mkdir -p "$build/classes"
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check "pyspark==$spark"
JAVA_HOME=$(deploy/setup.sh --java-home)
export JAVA_HOME SPARK_LOCAL_IP=127.0.0.1

cat > "$build/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>gnomon</groupId><artifactId>dione-tables</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.spark</groupId><artifactId>spark-avro_2.12</artifactId><version>$spark</version></dependency>
    <dependency><groupId>org.apache.parquet</groupId><artifactId>parquet-avro</artifactId><version>$parquet</version></dependency>
  </dependencies>
</project>
POM
mvn --quiet --batch-mode --file "$build/pom.xml" dependency:copy-dependencies \
    -DexcludeTransitive=true -DoutputDirectory="$build/jars"
if [[ -f $DIONE/pom.xml ]]; then
    mvn --quiet --batch-mode --file "$DIONE/pom.xml" -DskipTests package
    dione=$(find "$DIONE"/dione-*/target -name 'dione-*.jar' ! -name '*-sources.jar' ! -name '*-tests.jar' ! -name '*-javadoc.jar' | paste -sd:)
else
    dione=$DIONE
fi

jars=$(echo "$venv"/lib/python3*/site-packages/pyspark/jars)
opens=()
for package in java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util java.util.concurrent \
    java.util.concurrent.atomic sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar; do
    opens+=("--add-opens=java.base/$package=ALL-UNNAMED")
done
run() { "$JAVA_HOME/bin/java" -Xmx3g "${opens[@]}" -cp "$build/classes:$dione:$build/jars/*:$jars/*" "$@"; }
run scala.tools.nsc.Main -nowarn -usejavacp -d "$build/classes" deploy/dione/DioneTables.scala
if [[ ${1:-write} == prove ]]; then
    run DioneTables prove "$build/proof" "$2"
elif [[ ${1:-write} != write ]]; then
    declare -A modules=([takeover]=tests.golden.dione_tables.takeover [types]=tests.golden.dione_tables.types [speed]=bench.dione)
    module=${modules[$1]:?expected one of ${!modules[*]} or prove}
    rm -rf "${build:?}/$1"
    mkdir -p "$build/$1"
    run DioneTables "${1/takeover/write}" "$build/$1"
    "$PWD/.venv/bin/python" -m "$module" "$build/$1" "${@:2}"
else
    rm -rf "$folder"
    mkdir -p "$folder"
    run DioneTables write "$folder"
    "$PWD/.venv/bin/python" -m tests.golden.dione_tables.pack "$folder"
fi
