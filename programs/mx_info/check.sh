#!/usr/bin/env bash
# Tests of the programs for MX: over each port, examined from outside, and with invalid arguments.
#   check.sh BUILD-DIRECTORY [PORTS]  ends with the line 'N passed, M failed'
set -uo pipefail

. "$(dirname "$0")/../checks.sh"
bin=$build/bin
# The caller's settings must not change the tests.
unset MX_PEERS MX_PORT_BASE MX_DISABLE_SHMEM
export MX_PEERS="$work/peers"

# wait_for FILE: waits until it has a line
wait_for() {
    for _ in $(seq 1200); do
        [ -s "$1" ] && return 0
        kill -0 "$server" 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}

# start OPTIONS...: starts the other side on a free endpoint, whose number is in $endpoint. $program chooses another
# program.
start() {
    stop
    : > "$work/said"
    "${program:-$bin/mx_pingpong}" -e any "$@" > "$work/said" 2> "$work/errors" &
    server=$!
    wait_for "$work/said"
    endpoint=$(sed -n 's/.*endpoint \([0-9]*\)$/\1/p' "$work/said")
    [ -n "$endpoint" ] || { echo "no other side could be started"; cat "$work/errors"; exit 1; }
}

# ends CODE COMMAND...: it must end with that, in time
ends() {
    local code=$1
    shift
    timeout 60 "$@"
    local got=$?
    [ $got = "$code" ] || { echo "ended with $got, not $code: $*"; return 1; }
}

# explains TEXT COMMAND...: it must fail with 1 and print TEXT
explains() {
    local text=$1
    shift
    ends 1 "$@" > "$work/text" 2>&1 && grep -q -- "$text" "$work/text" && return 0
    cat "$work/text"
    echo "does not say: $text"
    return 1
}

# says TEXT COMMAND...: it must succeed and its output contain that
says() {
    local text=$1
    shift
    timeout 60 "$@" | tee "$work/text"
    [ "${PIPESTATUS[0]}" = 0 ] || { echo "failed: $*"; return 1; }
    grep -q -- "$text" "$work/text" || { echo "does not say: $text"; return 1; }
}

# lacks TEXT COMMAND...: it must succeed and its output not contain that
lacks() {
    local text=$1
    shift
    timeout 60 "$@" > "$work/text" || { echo "failed: $*"; return 1; }
    ! grep -- "$text" "$work/text"
}

# refused PROGRAM OPTIONS...: exit code 2, nothing on stdout, the reason and the usage, or where to find it, on stderr
refused() {
    local program=$1
    shift
    ends 2 "$bin/$program" "$@" > "$work/stdout" 2> "$work/stderr" || return 1
    [ ! -s "$work/stdout" ] && head -n 1 "$work/stderr" | grep -Eq "^($program|error): " &&
        grep -Eq "^[Uu]sage: $program|try '--help'" "$work/stderr"
}

# Both sides in one command.
check_self() {
    local few="-N 10 -R 1"
    check "a ping-pong of every size, verified" \
        ends 0 "$bin/mx_pingpong" --self -S 2M -v $few
    check "a ping-pong asleep" ends 0 "$bin/mx_pingpong" --self -w -s 8 -S 64K $few
    check "a stream of every size, verified" ends 0 "$bin/mx_stream" --self -S 2M -v $few
    check "a stream asleep, of one message at a time" \
        ends 0 "$bin/mx_stream" --self -w -W 1 -s 1K -S 64K $few
    check "figures as JSON" \
        says '^{"test":"pingpong","size":8,"rounds":10,"median_us":[0-9.]*,.*}$' \
        "$bin/mx_pingpong" --self --json -s 8 $few
}

# until_counted PID: waits until messages are received there; a client that is only connected has sent none
until_counted() {
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        "$bin/mx_info" counters -p "$1" --watch 0.3 --count 2 --json |
            grep -q 'per_second.*"matched":[1-9]' && return
    done
    return 1
}

# stop_server: stops it while a message to it is under way; none is just after it has received one
stop_server() {
    local tries
    for ((tries = 0; tries < 50; tries++)); do
        kill -STOP "$server"
        sleep 0.1
        "$bin/mx_info" peers -p "$client" --busy --json | grep -q '"operations":[1-9]' && return
        kill -CONT "$server"
        sleep 0.01
    done
}

# The other side serves one client.
check_ends() {
    local few="-N 20 -R 1 -s 64K" program client
    for program in "$bin/mx_pingpong" "$bin/mx_stream"; do
        start
        check "a client of ${program##*/}" ends 0 "$program" -d localhost -r "$endpoint" $few
        check "${program##*/} ends when its client is done" ended 0 "$server"
        server=
    done
    start
    "$bin/mx_stream" -d localhost -r "$endpoint" -s 64K -N 100000000 > "$work/killed" 2>&1 &
    client=$!
    check "a client's messages come in" until_counted "$server"
    kill -KILL "$client"
    wait "$client" 2>/dev/null
    check "it ends with an error when its client was killed" ended 1 "$server"
    server=
}

# start_client FILE: starts a client that runs until it is killed, as $client; returns when it is connected
start_client() {
    : > "$1"
    "$bin/mx_pingpong" -d localhost -r "$endpoint" -s 64K -N 100000000 > "$1" 2>&1 &
    client=$!
    wait_for "$1"
}

# Two processes that find each other by host name and endpoint.
check_pair() {
    local few="-N 20 -R 1 -s 1K -S 64K -v" port own
    start --keep
    check "a client by host name and endpoint" \
        ends 0 "$bin/mx_pingpong" -d localhost -r "$endpoint" $few
    check "a stream to the same other side" \
        ends 0 "$bin/mx_stream" -d localhost:0 -r "$endpoint" $few
    local client
    start_client "$work/killed"
    until_counted "$server"
    check "the client is among its peers" says "^  [^ ]*:0:[0-9]*  *\(connected\|link full\) .* [mu]\?s$" \
        "$bin/mx_info" peers -p "$server"
    check "with its links and the longest wait" says '"links":[12],"sent":.*,"longest_wait":[0-9]' \
        "$bin/mx_info" peers -p "$server" --json
    check "and in JSON" says "^{\"pid\":$server,.*\"peers\":\[{\"peer\":\".*:0:[0-9]*\",.*\"operations\":[0-9]" \
        "$bin/mx_info" peers -p "$server" --json
    stop_server
    sleep 1.2
    check "what waits for a process that is stopped grows old" \
        says '"oldest":[1-9][0-9]*\.[0-9]*,' "$bin/mx_info" peers -p "$client" --busy --json
    kill -CONT "$server"
    check "the client's packets are counted while it runs" \
        says 'per_second.*"packets_in":[1-9]' \
        "$bin/mx_info" counters -p "$server" --watch 0.3 --count 3 --json
    kill -KILL "$client"
    wait "$client" 2>/dev/null
    check "a client after one that was killed" \
        ends 0 "$bin/mx_pingpong" -d localhost -r "$endpoint" $few

    check_looking

    own=$(sed -n 's/^mx_pingpong: \(.*\):0, endpoint.*/\1/p' "$work/said")
    check "its own name is a host too" \
        ends 0 "$bin/mx_pingpong" -d "${own:-none}" -r "$endpoint" $few
    echo "127.0.0.1 other-name-of-mine" > "$work/peers"
    check "a name of the peers file" \
        ends 0 "$bin/mx_pingpong" -d other-name-of-mine -r "$endpoint" $few
    rm "$work/peers"
    local served in_line watcher
    start_client "$work/served"
    served=$client
    until_counted "$server"
    start_client "$work/in_line"
    in_line=$client
    : > "$work/watched"
    "$bin/mx_info" counters -p "$server" --watch 0.1 > "$work/watched" 2> "$work/unwatched" &
    watcher=$!
    wait_for "$work/watched"
    kill -KILL "$server"
    wait "$server" 2>/dev/null
    check "a client whose other side was killed ends" ended 1 "$served"
    check "so does one that waits for its turn" ended 1 "$in_line"
    check "it says why" grep "remote endpoint is unreachable" "$work/in_line"
    check "watching ends with the process" ended 0 "$watcher"
    check "nothing is left of it" ends 1 "$bin/mx_info" endpoints -p "$server"
    server=
}

# ended CODE PID: it ends with that, within a minute
ended() {
    for _ in $(seq 600); do
        kill -0 "$2" 2>/dev/null || break
        sleep 0.1
    done
    kill "$2" 2>/dev/null
    wait "$2"
    local got=$?
    [ $got = "$1" ] || { echo "ended with $got, not $1"; return 1; }
}

promtool_reads() {
    "$bin/mx_info" counters -p "$1" --prometheus | promtool check metrics
}

# Examines the other side from outside.
check_looking() {
    check "its endpoint is listed" \
        says "mx_pingpong *myriexpress" "$bin/mx_info"
    check "its endpoint is listed as JSON" \
        says "\"endpoints\":\[.*{\"pid\":$server,\"program\":\"mx_pingpong\"" "$bin/mx_info" --json
    check "its endpoint is described" \
        says "process *$server (mx_pingpong)" "$bin/mx_info" endpoints -e "$endpoint" -p "$server"
    check "its endpoint is described as JSON" \
        says "^\[{\"pid\":$server,.*\"library\":\"myriexpress\"" \
        "$bin/mx_info" endpoints -p "$server" --json
    check "its counters" says "^  packets_in  *[1-9]" "$bin/mx_info" counters -p "$server"
    check "its counters as metrics" \
        says "^mx_packets_in_total{.*pid=\"$server\",program=\"mx_pingpong\".*} [1-9]" \
        "$bin/mx_info" counters -p "$server" --prometheus
    if command -v promtool > /dev/null; then
        check "its metrics, as promtool reads them" promtool_reads "$server"
    fi
    check "counters that are 0 too" says "^  malformed *0" "$bin/mx_info" counters -p "$server" -a
    check "another board has no endpoint" ends 1 "$bin/mx_info" endpoints -b 77
    check "nor peers" ends 1 "$bin/mx_info" peers -b 77
    check "an endpoint without peers says so" says "0 peers" "$bin/mx_info" peers -p "$server"
    check "there is no such board" ends 1 "$bin/mx_info" -b 77
}

# An endpoint of another network namespace counts as one of another machine, and is seen only from there.
check_elsewhere() {
    local own=(unshare -n)
    [ "$(id -u)" = 0 ] || own=(unshare -rn)
    if ! "${own[@]}" true 2> "$work/errors"; then
        echo "left out: no network namespace can be made: $(head -n 1 "$work/errors")"
        return
    fi
    stop
    : > "$work/said"
    "${own[@]}" sh -c 'ip link set lo up; exec "$@"' - "$bin/mx_pingpong" -e 3 > "$work/said" &
    server=$!
    wait_for "$work/said"
    check "an endpoint of another network namespace is not this machine's" \
        ends 1 "$bin/mx_info" endpoints -p "$server"
    check "it has no counters here" ends 1 "$bin/mx_info" counters -p "$server"
    check "and is not in the list" lacks "\"pid\":$server," "$bin/mx_info" --json
    local there=(nsenter -t "$server" -n)
    [ "$(id -u)" = 0 ] || there=(nsenter -t "$server" -U --preserve-credentials -n)
    check "from there it is seen" \
        says "process *$server (mx_pingpong)" "${there[@]}" "$bin/mx_info" endpoints -e 3
    stop
}

# Calls that must fail.
check_failures() {
    start -f 5 --keep
    check "a wrong key" ends 1 "$bin/mx_pingpong" -d localhost -r "$endpoint" -s 1 -N 1
    check "the right key" ends 0 "$bin/mx_pingpong" -d localhost -r "$endpoint" -s 1 -N 1 -f 5
    check "an endpoint that is taken" ends 1 "$bin/mx_pingpong" -e "$endpoint"
    # Not one of the lowest numbers, which other endpoints of this machine may take at any moment.
    check "an endpoint that is not open" \
        explains "no process has that endpoint open" \
        "$bin/mx_pingpong" -d localhost -r $((20000 + RANDOM % 8000)) -s 1
    check "an endpoint that cannot be" ends 1 "$bin/mx_pingpong" -d localhost -r 70000 -s 1
    check "an unknown host, in the resolver's words" \
        explains "unknown host 'no-such-host.invalid' (.*)" "$bin/mx_pingpong" -d no-such-host.invalid -s 1
    check "a provider that is not there" explains "no matching libfabric provider (nosuch)" \
        env MX_PORT=rdm MX_PROVIDER=nosuch "$bin/mx_pingpong" --self -s 1
    check "a board that is not there" ends 1 "$bin/mx_pingpong" --self -b 77 -s 1
}

# mistaken PROGRAM OPTIONS...: it works, and warns of an impossible value and of an unknown name
mistaken() {
    local program=$1
    shift
    MX_SPIN_US=-1 MX_SPINUS=3 MX_LOG=warn ends 0 "$bin/$program" "$@" > "$work/text" 2>&1
    local ended=$?
    cat "$work/text"
    [ $ended = 0 ] && grep -q 'MX_SPIN_US="-1" ignored' "$work/text" &&
        grep -q 'unknown setting "MX_SPINUS" ignored' "$work/text" && ! grep -q MX_LOG "$work/text"
}

check_nonsense() {
    local words program
    for words in --nonsense extra '-s x' '-s -1' '-s 2G' '-s 8 -S 4' '-N 0' '-R 0' '-d' '-e -1' \
        '--self -d localhost' '--keep -d localhost' '--keep --self' '-f 99999999999'; do
        # shellcheck disable=SC2086
        check "mx_pingpong refuses $words" refused mx_pingpong $words
    done
    for program in "mx_info" "mx_pingpong --self -s 8 -N 1 -R 1"; do
        # shellcheck disable=SC2086
        check "$program names settings that are none" mistaken $program
    done
    check "mx_pingpong has no window" refused mx_pingpong -W 4
    check "mx_stream wants a window" refused mx_stream -W 0
    for words in --nonsense extra '-b x' '-e' '--watch 0' '--count 2' '--prometheus --json'; do
        # shellcheck disable=SC2086
        check "mx_counters refuses $words" refused mx_counters $words
    done
    check "mx_endpoint_info does not watch" refused mx_endpoint_info --watch 1
    check "mx_info takes no endpoint" refused mx_info -e 1
    check "mx_info's parts have the options of their own" refused mx_info fabrics --prometheus
    for program in mx_pingpong mx_stream mx_info mx_endpoint_info mx_counters mx_fabrics; do
        check "$program explains itself" says "^[Uu]sage: $program" "$bin/$program" --help
    done
    for words in endpoints counters fabrics; do
        check "mx_info $words explains itself" says "^Usage: mx_info $words" "$bin/mx_info" $words --help
    done
}

for label in $ports; do
    export MX_PORT=$label
    check_self
    check_ends
    check_pair
    check_failures
done
label=all
unset MX_PORT
check_elsewhere
check_nonsense

echo "mx_info: $passed passed, $failed failed"
[ "$failed" = 0 ]
