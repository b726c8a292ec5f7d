#!/usr/bin/env bash
# Builds the Mercury examples against the installed Mercury and runs them over each port. They are skipped, with a
# message, if there is no Mercury that loads plugins.
#   check.sh BUILD-DIRECTORY PORTS [CC]      MERCURY=prefix names a Mercury that pkg-config does not find
set -uo pipefail

build=$1 ports=$2 cc=${3:-cc}
here=$(cd "$(dirname "$0")" && pwd)

skip() {
    echo "skip mercury: $*"
    exit 0
}

prefix=${MERCURY:-}
[ -z "$prefix" ] || export PKG_CONFIG_PATH="$prefix/lib/pkgconfig:$prefix/lib64/pkgconfig" LD_LIBRARY_PATH="$prefix/lib"
flags=$(pkg-config --cflags --libs mercury 2> /dev/null) || skip "no Mercury is installed (MERCURY=prefix names one)"
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2> /dev/null; rm -rf "$work"' EXIT
for program in mercury_server mercury_client; do
    # shellcheck disable=SC2086
    "$cc" -std=gnu11 -O2 -Wall -Wextra -Werror -o "$work/$program" "$here/$program.c" $flags || exit 1
done
NA_PLUGIN_PATH=$(cd "$build/lib" && pwd)
export NA_PLUGIN_PATH
failed=0
for port in mx $ports; do
    "$work/mercury_server" "mx+$port://" > "$work/address" 2> "$work/errors" &
    server=$!
    for _ in $(seq 100); do
        [ -s "$work/address" ] && break
        kill -0 $server 2> /dev/null || break
        sleep 0.1
    done
    if [ ! -s "$work/address" ]; then
        grep -q 'No suitable plugin\|dynamic plugins' "$work/errors" && skip "this Mercury loads no plugins (NA_USE_DYNAMIC_PLUGINS)"
        cat "$work/errors"
        echo "FAIL mercury over $port: no server"
        exit 1
    fi
    sum=$(timeout 60 "$work/mercury_client" "$(cat "$work/address")")
    if [ "$sum" = 3145728 ]; then
        echo "ok   mercury over $port: $(cat "$work/address")"
    else
        echo "FAIL mercury over $port: '$sum'"
        cat "$work/errors"
        failed=1
    fi
    kill $server
    wait $server 2> /dev/null
    server=
done
exit $failed
