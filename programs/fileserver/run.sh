#!/usr/bin/env bash
# Starts the file server, copies a file in both directions over each port, compares, stops the server, and prints the
# speeds. Copies are in memory if there is room, so that no disk is measured. On each port the first copy in both
# directions only warms up, and the best of three more counts.
#   run.sh BUILD-DIRECTORY [FILE]
#   PORT="local tcp rdm dgram"   the ports
set -euo pipefail

build=$(cd "$1" && pwd)
file=${2:-}
ports=${PORT:-local tcp}
address=${ADDRESS:-mx://localhost:3}
server=

# Room for the file, the server's copies, and the copy that comes back.
size=268435456
[ -z "$file" ] || size=$(stat -L -c %s -- "$file")
room=$(df --output=avail -B1 /dev/shm 2>/dev/null | tail -n 1) || room=0
where="on disk" directory=${TMPDIR:-/tmp}
if [ "$room" -gt $((6 * size)) ]; then
    where="in memory" directory=/dev/shm
fi
work=$(mktemp -d -p "$directory")

cleanup() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap cleanup EXIT

export LD_LIBRARY_PATH="$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
if [ -z "$file" ]; then
    file=$work/generated
    echo "generating a 256 MiB file"
    head -c "$size" /dev/urandom > "$file"
fi
name=$(basename -- "$file")

# copy FROM TO: prints bmi_cp's line, or its messages if it fails
copy() {
    MX_PORT=$port "$build/bin/bmi_cp" "$1" "$2"
}

# speed put|get: prints the best speed in that direction
speed() {
    sed -n "s/^$1: .* s, \\([0-9.]*\\) MB.*/\\1/p" "$work/copies" | sort -g | tail -n 1
}

# times A B: prints the quotient of the figures A and B
times() {
    awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'
}

seen=
declare -A there back
for port in $ports; do
    echo "== port $port, $address"
    mkdir -p "$work/served"
    MX_PORT=$port "$build/bin/bmi_fileserver" "$address" "$work/served" > "$work/log" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        grep -q serving "$work/log" && break
        kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; server=; exit 1; }
        sleep 0.05
    done
    MX_PORT=$port "$build/bin/bmi_cp" --ping "$address"
    copy "$file" "$address/$name" > /dev/null
    copy "$address/$name" "$work/back" > /dev/null
    for _ in 1 2 3; do
        copy "$file" "$address/$name"
        copy "$address/$name" "$work/back"
    done | tee "$work/copies"
    cmp -- "$file" "$work/back"
    echo "the copy is identical to the original"
    there[$port]=$(speed put) back[$port]=$(speed get)
    seen+="${seen:+; }$port: there ${there[$port]}, back ${back[$port]}"
    MX_PORT=$port "$build/bin/bmi_cp" --list "$address"
    MX_PORT=$port "$build/bin/bmi_cp" --remove "$address/$name"
    kill "$server"
    wait "$server" || { echo "the server ended badly:" >&2; cat "$work/log" >&2; server=; exit 1; }
    server=
    rm -rf "$work/served" "$work/back"
done
echo "$size bytes there and back, identical, $where; the best of three in MB/s: $seen"
if [ -n "${there[local]:-}" ] && [ -n "${there[tcp]:-}" ]; then
    echo "shared memory (local) beside TCP on the same machine: $(times "${there[local]}" "${there[tcp]}") times as fast there," \
        "$(times "${back[local]}" "${back[tcp]}") times back"
fi
