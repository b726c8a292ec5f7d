#!/usr/bin/env bash
# The file server and its client, one of which is for another kind of processor, which is emulated.
#   files.sh BUILD-DIRECTORY OTHER'S PORTS EMULATOR  ends with the line 'N passed, M failed'
set -uo pipefail

. "$(dirname "$0")/../../programs/checks.sh"
other=$(cd "$2" && pwd)
ports=$3 emulator=$4
unset LD_LIBRARY_PATH

# Runs a program of this machine, or of the other kind.
program() { # program here|arm64 NAME ARGUMENTS...
    if [ "$1" = here ]; then
        BMI_MX_LIBRARY=$build/lib/libbmi_mx.so.0 "$build/bin/$2" "${@:3}"
    else
        BMI_MX_LIBRARY=$other/lib/libbmi_mx.so.0 $emulator "$other/bin/$2" "${@:3}"
    fi
}

start() {
    local try
    mkdir -p "$work/served"
    for try in $(seq 5); do
        address=mx://localhost:$((1024 + (RANDOM * 32768 + RANDOM) % 5000))
        : > "$work/log"
        program "$1" bmi_fileserver "$address" "$work/served" > "$work/log" 2>&1 &
        server=$!
        for _ in $(seq 600); do
            grep -q serving "$work/log" && return 0
            kill -0 "$server" 2>/dev/null || break
            sleep 0.1
        done
        stop
    done
    echo "no server could be started:" && cat "$work/log"
    return 1
}

# Runs the client as a check.
client() {
    program "$client" bmi_cp "$@"
}

# Copies files in both directions, which must be unchanged afterwards.
copied() {
    local size=$1
    client "$work/$size" "$address/$size" && client "$address/$size" "$work/back" && cmp "$work/$size" "$work/back"
}

at_once() {
    local pids=() n status=0
    for n in 1 2 3; do client "$work/70001" "$address/many.$n" & pids+=($!); done
    for n in "${pids[@]}"; do wait "$n" || status=1; done
    for n in 1 2 3; do client "$address/many.$n" "$work/back" && cmp "$work/70001" "$work/back" || status=1; done
    return $status
}

listed() {
    client --list "$address" | grep -q ' 20000000' && client --stat "$address/20000000" | grep -q '20000000 bytes'
}

for size in 0 1 88 89 4097 70001 20000000; do head -c $size /dev/urandom > "$work/$size"; done

for MX_PORT in $ports; do
    export MX_PORT
    for pair in arm64,arm64 here,arm64 arm64,here; do
        client=${pair%,*}
        label="$MX_PORT, client $client, server ${pair#*,}"
        start "${pair#*,}" || { failed=$((failed + 1)); continue; }
        check ping client --ping "$address"
        for size in 0 1 88 89 4097 70001 20000000; do
            check "$size bytes there and back" copied $size
        done
        check "lists and tells sizes" listed
        check "three clients at once" at_once
        # The server is a function of this shell, and the program is its child.
        child=$(cat "/proc/$server/task/$server/children")
        kill ${child:-$server}
        wait "$server"
        count $? "the server stops in order"
        server=
        rm -rf "$work/served"
    done
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
