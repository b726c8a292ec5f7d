#!/usr/bin/env bash
# Tests of bmi_rpc, on each port, in each of its builds (mk/programs.mk).
#   check.sh BUILD-DIRECTORY [PORTS]  ends with the line 'N passed, M failed'
set -uo pipefail

. "$(dirname "$0")/../checks.sh"

many() {
    local pids=() status=0
    for _ in $(seq 8); do
        "$rpc" call "$address" 40 200000 & pids+=($!)
    done
    for n in "${pids[@]}"; do wait "$n" || status=1; done
    return $status
}

killed_client() {
    "$rpc" call "$address" 100000 4000000 &
    local client=$!
    sleep 0.3
    kill -9 $client
    wait $client 2>/dev/null
    "$rpc" call "$address" 10 1000
}

for MX_PORT in $ports; do
    export MX_PORT
    for rpc in "$build/bin/bmi_rpc" "$build/examples/bmi_rpc-host"; do
        [ -x "$rpc" ] || continue
        label="$MX_PORT, $(basename "$rpc")"
        launch "$rpc" serve mx://localhost || { failed=$((failed + 1)); cat "$work/log"; continue; }
        address=$(sed -n 's/.*serving on //p' "$work/log")
        for size in 0 1 1000 40000 1000000 5000000; do
            check "calls, pulls and pushes of $size bytes" "$rpc" call "$address" 40 "$size"
        done
        check "many large ones at once" "$rpc" call "$address" 64 1000000
        check "eight clients at once" many
        check "a client killed in the middle harms no other" killed_client
        refused "a region too large" "Cannot allocate memory" "$rpc" call "$address" 1 67108865
        refused "a second server" "BMI error" "$rpc" serve "$address"
        refused "no server" "BMI error" "$rpc" call mx://localhost:1023 1
        refused "a malformed address" "BMI error" "$rpc" call mx://localhost:x 1
        ended
    done
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
