#!/bin/bash
# Runs the parts of a check, even if some fail, and sums up at the end.
#
#   parts.sh NAME LOGS PART...     each is `$MAKE PART`; its output goes to LOGS/PART.log
#
# BESIDE   parts that run beside those after them; the others run one after the other
#
# Each part is listed with its seconds and its processor seconds. The last line is "NAME: all N parts passed", or
# names the parts that failed, or those whose tests were all skipped.
set -u
name=$1 logs=$2
shift 2
mkdir -p "$logs"
total=$# begun=$SECONDS failed=() skipped=() beside=()
TIMEFORMAT='%U %S'
# Ends the parts that run beside, which otherwise get no signal.
trap 'trap - TERM; kill 0' INT

# run PART: writes its result, and its output if it failed, to LOGS/PART.result
run() {
    local part=$1 log=$logs/$1.log start=$SECONDS used result tally
    if used=$({ time $MAKE --no-print-directory "$part" >"$log" 2>&1; } 2>&1); then
        result=ok
    else
        result=FAILED
    fi
    # The last line of a suite counts its tests.
    tally=$(tail -n 1 "$log" | grep -E '[0-9]+ (passed|pages)' | cut -c1-60)
    [[ $result:$tally != "ok:0 passed, 0 failed, "* ]] || result=skipped
    {
        printf '%-7s %5d s %5.0f s  %s\n' "$result" $((SECONDS - start)) "$(awk '{ print $1 + $2 }' <<<"$used")" "$tally"
        if [ "$result" = FAILED ]; then
            # The names of the failed tests, wherever in the log they are; then the end of the log.
            echo "        what failed, and the last lines of $log:"
            {
                grep -A 12 -E '^FAIL |^---- .* stdout ----|panicked at|^error' "$log" | head -n 60
                echo ...
                tail -n 15 "$log"
            } | sed 's/^/        | /'
        fi
    } >"$logs/$part.result"
    [ "$result" != FAILED ]
}

# begins NUMBER PART, ended STATUS PART: together print a line
begins() {
    printf '[%2d/%d] %-20s ' "$1" "$total" "$2"
}

ended() {
    [ "$1" = 0 ] || failed+=("$2")
    ! grep -q '^skipped' "$logs/$2.result" || skipped+=("$2")
    cat "$logs/$2.result"
    rm "$logs/$2.result"
}

number=0
for part in "$@"; do
    number=$((number + 1))
    begins "$number" "$part"
    case " ${BESIDE:-} " in
    *" $part "*)
        echo "beside what follows"
        run "$part" &
        beside+=("$! $number $part")
        ;;
    *)
        run "$part"
        ended $? "$part"
        ;;
    esac
done
for job in ${beside[@]+"${beside[@]}"}; do
    read -r pid number part <<<"$job"
    begins "$number" "$part"
    wait "$pid"
    ended $? "$part"
done
if [ ${#failed[@]} -eq 0 ] && [ ${#skipped[@]} -gt 0 ]; then
    echo "$name: $((total - ${#skipped[@]})) of $total parts passed, $((SECONDS - begun)) s; skipped: ${skipped[*]} (logs: $logs)"
elif [ ${#failed[@]} -eq 0 ]; then
    echo "$name: all $total parts passed, $((SECONDS - begun)) s"
else
    # Repeated for a reader who sees only the last lines.
    for part in "${failed[@]}"; do
        grep -h -E '^FAIL |^ +[a-z].*, (side|director)|^test .*FAILED$|panicked at|^error' "$logs/$part.log" |
            head -n 12 | cut -c1-200 | sed "s/^/  $part: /"
    done
    echo "$name: ${#failed[@]} of $total parts failed, $((SECONDS - begun)) s: ${failed[*]} (make $name PARTS='${failed[*]}' runs them alone; logs: $logs)"
    exit 1
fi
