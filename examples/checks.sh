# Sourced by the examples' check.sh, which are called with BUILD-DIRECTORY [PORTS]: a server, and what its
# clients must do. `label` says what is being checked.
build=$(cd "$1" && pwd)
ports=${2:-local tcp}
work=$(mktemp -d)
server=
passed=0
failed=0
export LD_LIBRARY_PATH="$build/lib"

stop() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null
        wait "$server" 2>/dev/null
    fi
    server=
}
trap 'stop; rm -rf "$work"' EXIT

# launch COMMAND...: a server; false if it has not said that it is serving
launch() {
    : > "$work/log"
    "$@" > "$work/log" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        grep -q serving "$work/log" && return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    stop
    return 1
}

# The server ends, and well.
ended() {
    check "the server stops in order" bash -c "kill $server; tail --pid=$server -f /dev/null"
    wait "$server" || { failed=$((failed + 1)); echo "FAIL $label: exit status"; cat "$work/log"; }
    server=
}

# A command with a time limit, or a function of this script.
run() {
    if declare -F "$1" > /dev/null; then "$@"; else timeout 60 "$@"; fi
}

# check NAME COMMAND...: the command must succeed
check() {
    local name=$1
    shift
    if run "$@" > "$work/out" 2>&1; then
        passed=$((passed + 1))
        echo "ok   $label: $name"
    else
        failed=$((failed + 1))
        echo "FAIL $label: $name"
        sed 's/^/     /' "$work/out"
    fi
}

# refused NAME TEXT COMMAND...: the command must fail and say TEXT
refused() {
    local name=$1 text=$2
    shift 2
    if ! run "$@" > "$work/out" 2>&1 && grep -q -- "$text" "$work/out"; then
        passed=$((passed + 1))
        echo "ok   $label: $name"
    else
        failed=$((failed + 1))
        echo "FAIL $label: $name (expected '$text')"
        sed 's/^/     /' "$work/out"
    fi
}
