#!/bin/bash
# Runs parts of a check one after the other, whatever becomes of each, and says at the end how they went.
#
#   parts.sh NAME LOGS PART...     each is `$MAKE PART`; what it prints goes to LOGS/PART.log
#
# The last line is "NAME: all N parts passed", or names the parts that failed.
set -u
name=$1 logs=$2
shift 2
mkdir -p "$logs"
begun=$SECONDS number=0 failed=()
for part in "$@"; do
    number=$((number + 1)) start=$SECONDS log=$logs/$part.log
    printf '[%2d/%d] %-20s ' "$number" $# "$part"
    if $MAKE --no-print-directory "$part" >"$log" 2>&1; then
        result=ok
    else
        result=FAILED
        failed+=("$part")
    fi
    took=$((SECONDS - start))
    # A suite's last line counts its tests.
    printf '%-6s %5d s  %s\n' "$result" "$took" "$(tail -n 1 "$log" | grep -E '[0-9]+ (passed|pages)' | cut -c1-60)"
    if [ "$result" = FAILED ]; then
        # Which tests, wherever in the log they are; then how it ended.
        echo "        what failed, and the last lines of $log:"
        {
            grep -A 12 -E '^FAIL |^---- .* stdout ----|panicked at|^error' "$log" | head -n 60
            echo ...
            tail -n 15 "$log"
        } | sed 's/^/        | /'
    fi
done
if [ ${#failed[@]} -eq 0 ]; then
    echo "$name: all $# parts passed, $((SECONDS - begun)) s"
else
    echo "$name: ${#failed[@]} of $# parts failed, $((SECONDS - begun)) s: ${failed[*]} (make $name PARTS='${failed[*]}' runs them alone; logs: $logs)"
    exit 1
fi
