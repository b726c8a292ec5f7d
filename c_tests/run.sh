#!/bin/sh
# Runs test programs, each once per port, each with a time limit, and adds up their results.
#
#   run.sh DIRECTORY LIBDIR 'PORTS' PROGRAM...
#
# C_TESTS_UNDER    empty, asan or valgrind
# C_TESTS_EMULATOR a command before each program and side, which are for another processor (mk/arm64.mk)
# C_TESTS_LEFT_OUT names of tests that are skipped
# C_TESTS_NOT_RDM  programs that are not run over rdm
# C_TESTS_LIMIT    seconds a program may take (default 100, more under a checker)
# C_TESTS_ROUNDS   rounds of the tests that nightly runs make repeat for longer
# C_TESTS_JOBS     programs at a time (default: two for each processor, because most of them wait most of the time)
# C_TESTS_STRICT   set: addresses of peers name the port, so no message uses another one, not even the first over rdm
# C_TESTS_STACKS   KiB of stack for calls, and for those that open and close (support/stacks.h; default 16 64, none
#                  under a checker)
# C_TESTS_LIBRARY  the library that programs open by name (default bmi_mx)
# MX_PROVIDER, MX_LIBFABRIC   as the library reads them: the provider and the library for rdm
#
# The last line is "N passed, N failed", and ", N skipped" if something is missing. A program that crashes or is
# stopped counts as one failure besides those that it printed.
set -u

provider=${MX_PROVIDER:+-$(printf %s "$MX_PROVIDER" | tr ';' '+')}

# Runs one program over one port; the script calls itself with this, below.
if [ "$1" = --one ]; then
    directory=$2 limit=$3 port=$4 program=$5
    log=$directory/logs/$program-$port$provider.log
    stacks='16 64'
    # libfabric needs 15 KiB itself (docs/c-api.md); other builds of it may need more.
    [ "$port" != rdm ] || stacks='28 64'
    [ "$port" != rdm ] || [ -z "${MX_PROVIDER:-}${MX_LIBFABRIC:-}" ] || stacks='32 96'
    # The other side of wakeups counts system calls, and swapcontext makes two.
    if [ -z "${C_TESTS_UNDER:-}" ] && [ "$program" != wakeups ]; then
        export C_TESTS_STACKS="${C_TESTS_STACKS:-$stacks}"
    fi
    begin=$(date +%s%N)
    MX_PORT=$port timeout -k 5 "$limit" ${C_TESTS_EMULATOR:-} "$directory/$program" >"$log" 2>&1
    status=$?
    ms=$((($(date +%s%N) - begin) / 1000000))
    tally=$(sed -n 's/^tally \([0-9]*\) passed \([0-9]*\) failed \([0-9]*\) skipped$/\1 \2 \3/p' "$log" | tail -n 1)
    read -r p f s <<END
$tally
END
    if [ -z "$tally" ]; then
        p=$(grep -c '^\[       OK \]' "$log") f=$(($(grep -c '^\[  FAILED  \] [a-z]' "$log") + 1)) s=0
    elif [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then
        f=1
    fi
    echo "$p $f $s" >"$log.tally"
    skipped=
    [ "$s" -eq 0 ] || skipped=", $s skipped:$(sed -n 's/^    skipped://p' "$log" | sort -u | paste -sd';')"
    if [ "$f" -eq 0 ]; then
        [ "$p" -eq 0 ] && [ "$s" -gt 0 ] && how=skip || how=ok
        printf '%-5s %-16s %-6s %3d passed  %6d ms%s\n' "$how" "$program" "$port" "$p" "$ms" "$skipped"
    else
        # In one piece, so that lines of other tests do not get between these: the failed tests and the messages of
        # the sides.
        printf '%s\n' "$(
            printf 'FAIL  %-16s %-6s %3d passed  %6d ms, %d failed, exit %d (%s)\n' \
                "$program" "$port" "$p" "$ms" "$f" "$status" "$log"
            [ "$status" -eq 124 ] && echo "      stopped after $limit s"
            grep -E '^\[  FAILED  \] [a-z]|^    [a-z].*, (side|director)|^==[0-9]+== |ERROR: |SUMMARY: ' \
                "$log" | awk '!seen[$0]++' | head -n 60 | sed 's/^/      /'
        )"
    fi
    exit 0
fi

directory=$1 libdir=$2 ports=$3
shift 3
under=${C_TESTS_UNDER:-}
here=$(dirname "$0")
logs=$directory/logs
mkdir -p "$logs"

BMI_MX_LIBRARY=$(cd "$libdir" && pwd)/lib${C_TESTS_LIBRARY:-bmi_mx}.so.0
LD_LIBRARY_PATH=$(cd "$libdir" && pwd)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export BMI_MX_LIBRARY LD_LIBRARY_PATH

# More than a side may live (support/world.c), so that the name of a test that hangs is printed.
limit=100
case $under in
asan)
    limit=180
    export C_TESTS_SLOWER=3
    # The C side does not have to free the loader's scopes of dlopen'ed libraries. memalloc of more than there is
    # returns NULL.
    export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:exitcode=77:allocator_may_return_null=1
    export UBSAN_OPTIONS=print_stacktrace=1
    export LSAN_OPTIONS=suppressions=$here/lsan.supp:print_suppressions=0
    ;;
valgrind)
    limit=900
    export C_TESTS_SLOWER=20
    # Read by support/world.c, which starts the sides of a test with it.
    C_TESTS_WRAP="valgrind --quiet --vgdb=no --error-exitcode=78 --leak-check=full \
        --errors-for-leak-kinds=definite --show-leak-kinds=definite --fair-sched=yes"
    export C_TESTS_WRAP
    ;;
esac
if [ -n "${C_TESTS_EMULATOR:-}" ]; then
    limit=900
    export C_TESTS_SLOWER="${C_TESTS_SLOWER:-5}"
    export C_TESTS_WRAP="$C_TESTS_EMULATOR"
    # An emulator keeps data for each page of addresses that a program reserves, which takes seconds at the start of
    # each program. If addresses are limited, the library reserves fewer.
    ulimit -S -v 16777216
fi
limit=${C_TESTS_LIMIT:-$limit}

# Prints pairs of port and program, one a line.
pairs() {
    for port in $ports; do
        for program in "$@"; do
            case "$port: ${C_TESTS_NOT_RDM:-} " in "rdm:"*" $program "*) continue ;; esac
            case $program in
            # These do not depend on the port.
            layout | header_cxx | set_host* | hosts | stderr | releases | table_* | bare | names) [ "$port" = "${ports%% *}" ] || continue ;;
            # These are about one port, and choose it themselves.
            fabric | strangers_fabric | fabric_crowd) [ "$port" = rdm ] || continue ;;
            # Its strangers speak tcp.
            strangers_credits) [ "$port" = tcp ] || [ "$port" = local ] || continue ;;
            # 64 processes with libfabric in each take longer than a peer waits.
            ranks) [ "$port" != rdm ] || continue ;;
            # These are about TCP connections.
            crowd | data_links) [ "$port" = tcp ] || continue ;;
            # About sessions of datagrams.
            data_sessions) [ "$port" = dgram ] || continue ;;
            # The attackers speak tcp and datagrams.
            takeover) [ "$port" = tcp ] || [ "$port" = dgram ] || continue ;;
            # The library does not control the calls that libfabric makes (docs/c-api.md).
            cancelled) [ "$port" != rdm ] || continue ;;
            # The behaviour of a fabric on bad links depends on its provider.
            net_*) [ "$port" != rdm ] || continue ;;
            esac
            echo "$port $program"
        done
    done
}

pairs "$@" | xargs -r -P "${C_TESTS_JOBS:-$((2 * $(nproc)))}" -L 1 "$0" --one "$directory" "$limit"

passed=0 failed=0 skipped=0
for pair in $(pairs "$@" | tr ' ' '/'); do
    read -r p f s <"$logs/${pair#*/}-${pair%%/*}$provider.log.tally" || f=1 p=0 s=0
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
[ "$skipped" -eq 0 ] && skipped= || skipped=", $skipped skipped"
echo "$passed passed, $failed failed$skipped"
[ "$failed" -eq 0 ]
