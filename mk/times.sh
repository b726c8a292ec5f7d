#!/bin/bash
# Measures the targets of the Makefile from a clean clone of this commit, with cargo's downloads already there.
#
#   times.sh WORK [TARGET...]   default: run all quick check; each in a clone of its own, except quick, which uses
#                               that of the target before. .ci/run is a target, too
#
# Prints a table for CONTRIBUTING.md: seconds, and the number of compiled crates.
set -eu
work=$1
shift
[ $# -gt 0 ] || set -- run all quick check
root=$(git rev-parse --show-toplevel)
rm -rf "$work"
mkdir -p "$work"
work=$(cd "$work" && pwd)
echo "| $(nproc) cores, $(git -C "$root" rev-parse --short HEAD) | seconds | crates compiled |"
echo "|---|---:|---:|"
failed=0
for target in "$@"; do
    clone=$work/clone
    if [ "$target" != quick ] || [ ! -d "$clone" ]; then
        rm -rf "$clone"
        git clone -q "$root" "$clone"
    fi
    log=$work/$(basename "$target").log
    case $target in
    .ci/run) command=(.ci/run) ;;
    # Measured when it has been built once, which check does not do.
    quick) command=(make quick) && (cd "$clone" && make quick >/dev/null 2>&1) || true ;;
    *) command=(make "$target") ;;
    esac
    begun=$SECONDS how=
    (cd "$clone" && unset CARGO_TARGET_DIR MAKEFLAGS MAKELEVEL && "${command[@]}") >"$log" 2>&1 || how=' (failed)'
    took=$((SECONDS - begun))
    [ -z "$how" ] || failed=1
    compiled=$(cat "$log" "$clone"/build/check/logs/*.log 2>/dev/null | grep -c '^ *Compiling ') || true
    echo "| \`${command[*]}\`$how | $took | $compiled |"
done
rm -rf "$work/clone"
exit $failed
