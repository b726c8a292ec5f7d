#!/usr/bin/env bash
# Tests of the file server and its client, on each port and in both builds.
#   check.sh BUILD-DIRECTORY [PORTS]  ends with the line 'N passed, M failed'
set -uo pipefail

. "$(dirname "$0")/../checks.sh"

# start SERVER-BINARY: starts the server on a free endpoint
start() {
    local try id
    for try in $(seq 20); do
        id=$((1024 + (RANDOM * 32768 + RANDOM) % 5000))
        address=mx://localhost:$id
        mkdir -p "$work/served"
        launch "$1" "$address" "$work/served" && return 0
    done
    echo "no server could be started:" && cat "$work/log"
    return 1
}

many() {
    local pids=() n status=0
    for n in $(seq 12); do
        "$cp" "$work/medium" "$address/many.$n" & pids+=($!)
    done
    for n in "${pids[@]}"; do wait "$n" || status=1; done
    pids=()
    for n in $(seq 12); do
        "$cp" "$address/many.$n" "$work/many.$n" & pids+=($!)
    done
    for n in "${pids[@]}"; do wait "$n" || status=1; done
    for n in $(seq 12); do cmp "$work/medium" "$work/many.$n" || status=1; done
    return $status
}

killed_client() {
    "$cp" "$work/large" "$address/interrupted" &
    local client=$!
    sleep 0.05
    kill -9 $client
    wait $client 2>/dev/null
    "$cp" --ping "$address" && ! "$cp" --stat "$address/interrupted"
}

: > "$work/empty"
head -c 5000000 /dev/urandom > "$work/medium"
# So large that the copy is not finished before the client is killed; it takes no room on the disk.
truncate -s 8G "$work/large"

for MX_PORT in $ports; do
    export MX_PORT
    for kind in dlopen linked; do
        label="$MX_PORT, $kind"
        if [ $kind = dlopen ]; then
            fileserver=$build/bin/bmi_fileserver cp=$build/bin/bmi_cp
        else
            fileserver=$build/examples/bmi_fileserver-linked cp=$build/examples/bmi_cp-linked
        fi
        start "$fileserver" || { failed=$((failed + 1)); continue; }
        for size in empty medium; do
            check "put $size" "$cp" "$work/$size" "$address/$size"
            check "get $size" "$cp" "$address/$size" "$work/back"
            check "$size is identical" cmp "$work/$size" "$work/back"
        done
        check "stat tells the size" bash -c "'$cp' --stat '$address/medium' | grep -q '5000000 bytes'"
        check "list names the files" bash -c "'$cp' --list '$address' | grep -q ' medium'"
        check "ping" "$cp" --ping "$address"
        check "twelve clients at once" many
        check "a client killed in the middle harms no other" killed_client
        check "remove" "$cp" --remove "$address/medium"
        refused "a removed file is gone" "No such file" "$cp" --stat "$address/medium"
        refused "names leave the directory not" "Invalid argument" "$cp" --stat "$address/../log"
        refused "a second server is refused" "in use" "$fileserver" "$address" "$work/served"
        refused "no server" "refused" "$cp" --ping mx://localhost:1023
        # With the resolver's message, whatever that is.
        refused "an unknown host" "unknown host 'no-such-host.invalid' (.*)" "$cp" --ping mx://no-such-host.invalid:3
        refused "a malformed address" "not an mx:// address" "$cp" --ping mx://localhost:x
        ended
        rm -rf "$work/served"
    done
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
