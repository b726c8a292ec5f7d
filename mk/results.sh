#!/bin/bash
# Writes the output of `make bench` into its part of a page, with the machine and the commit.
#   results.sh TABLE PAGE
set -eu

processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sort | uniq -c | sed 's/^ *\([0-9]*\) /\1 x /')
{
    echo "Commit $(git describe --always --dirty), $(date +%F). $(uname -m), ${processor:-$(nproc) cores}, Linux $(uname -r)."
    printf '\n```text\n'
    # Without the bursts, which are indented.
    sed '/^    /d; s/ *$//' "$1"
    printf '```\n'
} >"$1.page"
awk -v part="$1.page" '
    /<!-- end of make bench -->/ { if (!within) exit 1; within = 0 }
    !within { print }
    /<!-- make bench -->/ { within = found = 1; while ((getline line < part) > 0) print line }
    END { if (!found || within) exit 1 }
' "$2" >"$2.new" || { rm -f "$2.new" "$1.page"; echo "results: $2 has no part for make bench" >&2; exit 1; }
mv "$2.new" "$2"
rm -f "$1.page"
