#!/bin/sh
# Runs the Spark tests on other versions of PySpark and Python, each in a virtual environment that is thrown away.
#   matrix.sh                    every combination below
#   matrix.sh 4.0@3.11 4.3@3.13  these: PySpark@Python
# MATRIX_TESTS is what pytest is asked to run. Logs stay in .matrix/; a table of what ran comes last. The exit code is 0
# only if every combination passed.
set -eu
cd "$(dirname "$0")/.."

# The newest PySpark runs in .venv, on one Python. Here are its other Pythons, and the older ones of PySpark.
COMBINATIONS="4.0@3.11 4.1@3.11 4.2@3.11 4.3@3.10 4.3@3.12 4.3@3.13"
TESTS=${MATRIX_TESTS:-"tests/spark -m 'not slow and not full'"}
HOME_OF_ALL=.matrix
TABLE=$HOME_OF_ALL/table

say() { echo "matrix: $*" >&2; }

# find_python <version>: on PATH, or made by pyenv, whose shims may be there and not run.
find_python() {
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        if "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

version_of() { "$1" -c "from importlib.metadata import version; print(version('$2'))" 2>/dev/null || echo "-"; }

# row <python of the environment> <PySpark wanted> <Python wanted> <result>
row() {
    pyspark=$2 python=$3 pandas=- pyarrow=-
    if [ -x "$1" ]; then
        pyspark=$(version_of "$1" pyspark)
        python=$("$1" -c 'import platform; print(platform.python_version())')
        pandas=$(version_of "$1" pandas)
        pyarrow=$(version_of "$1" pyarrow)
    fi
    printf '| %-7s | %-7s | %-7s | %-7s | %s |\n' "$pyspark" "$python" "$pandas" "$pyarrow" "$4" >>$TABLE
}

# run_one <PySpark> <Python>: adds a row to the table; fails if the tests did.
run_one() {
    name=pyspark-$1-python-$2
    venv=$HOME_OF_ALL/$name
    log=$HOME_OF_ALL/$name.log
    if ! python=$(find_python "$2"); then
        row - "$1" "$2" "not run: there is no Python $2"
        return 0
    fi
    rm -rf "$venv"
    say "PySpark $1 on Python $2: installing"
    if ! { "$python" -m venv "$venv" &&
        "$venv/bin/python" -m pip install -q --disable-pip-version-check -e '.[dev,spark]' "pyspark[sql]==$1.*"; } \
        >"$log" 2>&1; then
        row "$venv/bin/python" "$1" "$2" "cannot be installed: see $log"
        rm -rf "$venv"
        return 1
    fi
    say "PySpark $1 on Python $2: testing"
    status=0
    # The words of TESTS are quoted for a shell.
    PATH="$PWD/$venv/bin:$PATH" sh -c "exec python -m pytest -q -p no:cacheprovider $TESTS" >>"$log" 2>&1 || status=$?
    summary=$(tail -n 1 "$log" | sed 's/^=* *//; s/ *=*$//')
    row "$venv/bin/python" "$1" "$2" "$summary"
    rm -rf "$venv"
    return $status
}

mkdir -p $HOME_OF_ALL
printf '| PySpark | Python  | pandas  | pyarrow | tests |\n|---|---|---|---|---|\n' >$TABLE
failed=
# shellcheck disable=SC2086
if [ $# = 0 ]; then set -- $COMBINATIONS; fi
for combination in "$@"; do
    run_one "${combination%@*}" "${combination#*@}" || failed=yes
done
cat $TABLE
if [ -n "$failed" ]; then
    say "not every combination passed; the logs are in $HOME_OF_ALL/"
    exit 1
fi
