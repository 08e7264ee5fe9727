#!/usr/bin/env bash
# Installs what pip cannot: make, Java for Spark, and a Python that can make virtual environments.
#
#   deploy/setup.sh               As root with apt-get: install what is missing. Else: one line, exit status 1.
#   deploy/setup.sh --browser     The same for Chromium, in which the tests of the page run.
#   deploy/setup.sh --stores      The same for npm and Go, with which the tests install servers of S3, Google's and Azure's stores.
#   deploy/setup.sh --nginx       The same for nginx, behind which the tests ask the service.
#   deploy/setup.sh --prometheus  The same for Prometheus, in which the tests try the alerts and the dashboard.
#   deploy/setup.sh --compiler    The same for a C compiler and Python's headers. Gnomon works without them, slower.
#   deploy/setup.sh --java-home   Print the JAVA_HOME for Spark; nothing if `java` on the PATH is new enough.
#
# PYTHON names the interpreter to check (python3), JVM_DIR the folder Java installations lie in (/usr/lib/jvm).
set -euo pipefail

readonly java_needed=17 python_needed=11 # Python 3.11
readonly java_package=openjdk-17-jre-headless
readonly python=${PYTHON:-python3} jvm_dir=${JVM_DIR:-/usr/lib/jvm}

fail() {
    echo "$1" >&2
    exit 1
}

may_install() {
    [[ $(id -u 2>/dev/null) == 0 ]] && command -v apt-get >/dev/null
}

# install REASON PACKAGE...   Install the first of the packages that this release of the system has.
install() {
    local package log=''
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update >/dev/null || true
    for package in "${@:2}"; do
        echo "$1: installing $package."
        if log=$(apt-get -qq install --yes --no-install-recommends "$package" 2>&1); then return; fi
    done
    if [[ -n $log ]]; then echo "$log" >&2; fi
}

# The major version of a java executable ("1.8.0_392" is 8, "25-ea" is 25); 0 if it does not start.
java_major() {
    local text version=0
    text=$("$1" -version 2>&1) || true
    if [[ $text =~ version\ \"([^\"]+)\" ]]; then
        version=${BASH_REMATCH[1]#1.}
        version=${version%%[!0-9]*}
    fi
    echo "${version:-0}"
}

# Sets java_state (ready, elsewhere, missing), java_home for Spark ("" is the PATH's), java_found for messages.
# JAVA_HOME comes first, then the PATH, then the lowest suitable version in jvm_dir.
find_java() {
    local home major lowest=0
    java_state=ready java_home='' java_found='none'
    if [[ -n ${JAVA_HOME:-} ]]; then
        major=$(java_major "$JAVA_HOME/bin/java")
        java_found="$major (JAVA_HOME=$JAVA_HOME)"
        if ((major >= java_needed)); then java_home=$JAVA_HOME && return; fi
    fi
    if command -v java >/dev/null; then
        major=$(java_major java)
        java_found="$major ($(command -v java))"
        if ((major >= java_needed)); then return; fi
    fi
    java_state=missing
    for home in "$jvm_dir"/*; do
        if [[ ! -x $home/bin/java ]]; then continue; fi
        major=$(java_major "$home/bin/java")
        if ((major >= java_needed && (lowest == 0 || major < lowest))); then
            lowest=$major java_state=elsewhere java_home=$home
        fi
    done
}

check_java() {
    find_java
    if [[ $java_state == missing ]] && may_install; then
        install "Spark needs Java $java_needed or later, found $java_found" "$java_package" default-jre-headless
        find_java
    fi
    case $java_state in
        missing) fail "Spark needs Java $java_needed or later, found $java_found: install the Debian package $java_package." ;;
        elsewhere) echo "No Java $java_needed or later in JAVA_HOME or on the PATH (found $java_found): using JAVA_HOME=$java_home." ;;
    esac
}

# Sets python_found to "3.<minor>", "3.<minor> without venv" or "none"; succeeds if that is suitable.
find_python() {
    local minor venv
    python_found=none
    command -v "$python" >/dev/null || return 1
    read -r minor venv < <("$python" -c '
import sys
from importlib.util import find_spec
print(sys.version_info[1], int(bool(find_spec("venv") and find_spec("ensurepip"))))') || return 1
    python_found=3.$minor
    ((minor >= python_needed)) || return 1
    if ((!venv)); then python_found+=" without venv" && return 1; fi
}

check_python() {
    if find_python; then return; fi
    if may_install; then
        install "Gnomon needs Python 3.$python_needed or later with venv, found $python_found" python3-venv
        if find_python; then return; fi
    fi
    fail "Gnomon needs Python 3.$python_needed or later with venv, found $python_found ($python): install the Debian package python3-venv, or set PYTHON."
}

check_make() {
    if command -v make >/dev/null; then return; fi
    if may_install; then install "Gnomon is set up with make, found none" make; fi
    command -v make >/dev/null || fail "Gnomon is set up with make, found none: install the Debian package make."
}

check_browser() {
    local program
    for program in chromium chromium-browser google-chrome; do
        if command -v "$program" >/dev/null; then return; fi
    done
    if may_install; then install "The tests of the page run in Chromium, found none" chromium; fi
    command -v chromium >/dev/null || fail "The tests of the page run in Chromium, found none: install the Debian package chromium."
}

check_stores() {
    local azure="The tests of Azure's store install Azurite with npm, found none"
    local others="The tests of S3 and Google Cloud Storage build their servers with Go, found none"
    if ! command -v npm >/dev/null && may_install; then install "$azure" npm; fi
    if ! command -v go >/dev/null && may_install; then install "$others" golang-go; fi
    command -v npm >/dev/null || fail "$azure: install the Debian package npm."
    command -v go >/dev/null || fail "$others: install the Debian package golang-go."
}

check_nginx() {
    if command -v nginx >/dev/null; then return; fi
    if may_install; then install "The service is tested behind nginx, found none" nginx-light nginx; fi
    command -v nginx >/dev/null || fail "The service is tested behind nginx, found none: install the Debian package nginx."
}

check_prometheus() {
    local why="The alerts are tested in Prometheus, found none"
    if [[ -n $(command -v prometheus) && -n $(command -v promtool) ]]; then return; fi
    if may_install; then install "$why" prometheus; fi
    [[ -n $(command -v prometheus) && -n $(command -v promtool) ]] || fail "$why: install the Debian package prometheus."
}

check_compiler() {
    local headers
    if ! command -v gcc >/dev/null && ! command -v cc >/dev/null && may_install; then
        install "Gnomon compiles its inner loops, found no C compiler" gcc
        install "Gnomon compiles its inner loops" libc6-dev
    fi
    headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
    if [[ ! -f $headers ]] && may_install; then
        install "Gnomon compiles its inner loops, found no headers of Python" python3-dev
    fi
    command -v gcc >/dev/null || command -v cc >/dev/null ||
        fail "No C compiler: Gnomon runs its inner loops in Python, slower. Install the Debian packages gcc and libc6-dev."
    [[ -f $headers ]] ||
        fail "No $headers: Gnomon runs its inner loops in Python, slower. Install the Debian package python3-dev."
}

case ${1:-} in
    --compiler) check_compiler ;;
    --browser) check_browser ;;
    --stores) check_stores ;;
    --nginx) check_nginx ;;
    --prometheus) check_prometheus ;;
    --java-home)
        find_java
        echo "$java_home"
        ;;
    '')
        check_make
        check_java
        check_python
        ;;
    *) fail "$0: unknown option $1" ;;
esac
