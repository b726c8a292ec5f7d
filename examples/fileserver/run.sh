#!/usr/bin/env bash
# Starts the file server, copies a file there and back over each port, verifies, stops the server.
#   run.sh BUILD-DIRECTORY [FILE]
#   PORT="local tcp rdm dgram"   the ports
set -euo pipefail

build=$(cd "$1" && pwd)
file=${2:-}
ports=${PORT:-local tcp}
address=${ADDRESS:-mx://localhost:3}
work=$(mktemp -d)
server=

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
    head -c 268435456 /dev/urandom > "$file"
fi
name=$(basename -- "$file")

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
    MX_PORT=$port "$build/bin/bmi_cp" "$file" "$address/$name"
    MX_PORT=$port "$build/bin/bmi_cp" "$address/$name" "$work/back"
    cmp -- "$file" "$work/back"
    echo "the copy is identical to the original"
    MX_PORT=$port "$build/bin/bmi_cp" --list "$address"
    MX_PORT=$port "$build/bin/bmi_cp" --remove "$address/$name"
    kill "$server"
    wait "$server" || { echo "the server ended badly:" >&2; cat "$work/log" >&2; server=; exit 1; }
    server=
    rm -rf "$work/served" "$work/back"
done
