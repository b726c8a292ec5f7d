# Sourced by the examples' check.sh: starts a server, and checks clients.
. "$(dirname "${BASH_SOURCE[0]}")/../mk/checks.sh"
export LD_LIBRARY_PATH="$build/lib"

# launch COMMAND...: starts a server; false if it has not printed that it is serving
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

# The server ends with success.
ended() {
    check "the server stops in order" bash -c "kill $server; tail --pid=$server -f /dev/null"
    wait "$server" || { failed=$((failed + 1)); echo "FAIL $label: exit status"; cat "$work/log"; }
    server=
}

# refused NAME TEXT COMMAND...: the command must fail and print TEXT
refused() {
    local name=$1 text=$2
    shift 2
    ! run "$@" > "$work/out" 2>&1 && grep -q -- "$text" "$work/out"
    count $? "$name (says '$text')"
}
