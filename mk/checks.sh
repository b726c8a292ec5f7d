# Sourced by the check.sh scripts, which are called with BUILD-DIRECTORY [PORTS]. `label` names the tested thing,
# `server` is a process to end with the script; the script ends with "$passed passed, $failed failed".
build=$(cd "$1" && pwd)
ports=${2:-local tcp}
work=$(mktemp -d)
server=
passed=0
failed=0

stop() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null
        wait "$server" 2>/dev/null
    fi
    server=
}
trap 'stop; rm -rf "$work"' EXIT

# Runs a command with a time limit, or a function of this script.
run() {
    if declare -F "$1" > /dev/null; then "$@"; else timeout 60 "$@"; fi
}

# count STATUS NAME: prints and counts how a check ended
count() {
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
        echo "ok   $label: $2"
    else
        failed=$((failed + 1))
        echo "FAIL $label: $2"
        sed 's/^/     /' "$work/out"
    fi
}

# check NAME COMMAND...: the command must succeed
check() {
    local name=$1
    shift
    run "$@" > "$work/out" 2>&1
    count $? "$name"
}
