#!/bin/bash
# Tests over soft-RoCE, run in the virtual machine as its root. Each part is a function below.
#   check.sh BUILD-DIRECTORY [PART...]     ends with the line 'N passed, M failed'
#
# RXE_SLOWER   the factor by which this processor is slower than a real one, and deadlines are longer
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=mk/checks.sh
. "$here/../../mk/checks.sh"
. "$here/link.sh"
shift
parts=${*:-closing registrations files programs killed lost locked datagrams removed}
slower=${RXE_SLOWER:-1}
bin=$build/bin
logs=$build/rxe/logs
mkdir -p "$logs"
export LD_LIBRARY_PATH=$build/lib MX_PORT=rdm MX_PROVIDER='verbs;ofi_rxm'
# With the port's name no message uses TCP, neither before a session has moved nor because a move failed.
a=mx://rdm@10.9.0.1:4000 b=mx://rdm@10.9.0.2:4000

# serve ADDRESS [NAME=VALUE...]: starts a file server there, in this environment
serve() {
    local address=$1
    shift
    mkdir -p "$work/served"
    env "$@" "$bin/bmi_fileserver" "$address" "$work/served" >"$work/server" 2>&1 &
    server=$!
    for _ in $(seq $((200 * slower))); do
        grep -q serving "$work/server" && return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    cat "$work/server"
    stop
    return 1
}

# within SECONDS COMMAND...: runs it for so long at most
within() {
    timeout $(($1 * slower)) "${@:2}"
}

client() {
    within "$1" "$bin/bmi_cp" "${@:2}"
}

# there_and_back ADDRESS [FILE]: copies a file in both directions, and compares
there_and_back() {
    local file=$work/${2:-file}
    client 120 "$file" "$1/file" && client 120 "$1/file" "$work/back" && cmp "$file" "$work/back"
}

# over DEVICE BYTES COMMAND...: it succeeds, and the device has sent so many more bytes
over() {
    local device=$1 bytes=$2 before after mtu=1024
    shift 2
    before=$(crossed "$device")
    "$@" || return 1
    after=$(crossed "$device")
    echo "$device sent $((after - before)) packets"
    [ $(((after - before) * mtu)) -ge "$bytes" ]
}

# wait_for SECONDS COMMAND...: repeats it until it succeeds
wait_for() {
    local tries=$(($1 * 5))
    shift
    for _ in $(seq "$tries"); do
        "$@" && return 0
        sleep 0.2
    done
    return 1
}

registered() {
    rdma resource show mr | grep -c " pid $1 "
}

# ---- closing a registration ends the peer's access ----

closing() {
    label=closing
    # For 256 peers, ofi_rxm asks for more completions than the device has.
    export FI_UNIVERSE_SIZE=32
    FI_MR_CACHE_MAX_COUNT=0 check "without libfabric's cache a closed registration cannot be read" within 60 "$build/rxe/mrclose"
    sed 's/^/     /' "$work/out"
    echo "     and with it:"
    env -u FI_MR_CACHE_MAX_COUNT "$build/rxe/mrclose" | sed 's/^/     /'
    unset FI_UNIVERSE_SIZE
}

# ---- registrations before and after ----

registrations() {
    label=registrations
    C_TESTS_STRICT=1 C_TESTS_SLOWER=$slower check "none is left" within 100 "$build/rxe/registrations"
    grep '^    ' "$work/out"
}

# ---- the file server ----

files() {
    label=files
    check "a server" serve "$a" && {
        check "10 MiB there and back" over rxe0 10000000 there_and_back "$a"
        check "the server stops in order" within 10 bash -c "kill $server; tail --pid=$server -f /dev/null"
        server=
    }
    check "a server at the other device" serve "$b" && {
        check "10 MiB there and back between two devices" over rxe1 10000000 there_and_back "$b"
        stop
    }
}

# ---- C programs ----

programs() {
    label=programs
    run_programs rdm "${PROGRAMS:-messages large cancel reuse deaths restart}"
}

# run_programs PORT PROGRAMS
run_programs() {
    # shellcheck disable=SC2086
    C_TESTS_STRICT=1 C_TESTS_JOBS=1 C_TESTS_SLOWER=$slower C_TESTS_LIMIT=$((100 * slower)) \
        "$here/../../c_tests/run.sh" "$build/c_tests" "$build/lib" "$1" $2 >"$work/out"
    grep -v ' passed, .* failed$' "$work/out"
    tally=$(tail -n 1 "$work/out")
    passed=$((passed + ${tally%% *}))
    tally=${tally#*, }
    failed=$((failed + ${tally%% *}))
    mkdir -p "$logs/programs"
    rm -f "$logs"/programs/*
    for program in $2; do cp "$build/c_tests/logs/$program-$1"*.log "$logs/programs/"; done
    check "all of them went over the devices" none_fell_back
}

# none_fell_back: no program gave up its fabric for TCP, if its result does not depend on the devices
none_fell_back() {
    ! grep -l 'falling back to' "$logs"/programs/*
}

# ---- a client killed while the card reads ----

killed() {
    local client before
    label=killed
    check "a server" serve "$a" || return
    check "a client" client 60 --ping "$a"
    before=$(registered "$server")
    truncate -s 64M "$work/large"
    for way in put get; do
        if [ $way = put ]; then
            "$bin/bmi_cp" "$work/large" "$a/large" >"$work/killed" 2>&1 &
        else
            cp "$work/large" "$work/served/large"
            "$bin/bmi_cp" "$a/large" "$work/back" >"$work/killed" 2>&1 &
        fi
        client=$!
        sent=$(packets)
        check "$way: the transfer is under way" wait_for 60 moved 2000
        kill -9 "$client"
        wait "$client" 2>/dev/null
        check "$way: another one is served at once" client 10 --ping "$a"
        check "$way: nothing of it stays registered" wait_for 25 registrations_are "$before"
    done
    check "10 MiB there and back" there_and_back "$a"
    stop
}

# Prints the packets of both devices; the data comes from the client's when it puts a file.
packets() {
    echo $(($(crossed rxe0) + $(crossed rxe1)))
}

moved() {
    [ $(($(packets) - sent)) -ge "$1" ]
}

registrations_are() {
    local now
    now=$(registered "$server")
    echo "$now registrations, $1 before"
    [ "$now" -le "$1" ]
}

# ---- 1 % of the packets lost ----

# The device notices the lost answer to a read by its timer, a second later or more, and sends nothing else meanwhile:
# packets queued behind eight reads of 256 KiB, signs of life too, may come later than MX_RDM_KEEPALIVE_MS allows.
lost() {
    local end
    label=lost
    tc qdisc add dev va root netem loss 1%
    tc qdisc add dev vb root netem loss 1%
    head -c 262144 "$work/file" >"$work/small"
    check "a server at the other device" serve "$b" && {
        check "256 KiB there and back" over rxe1 250000 there_and_back "$b" small
        check "10 MiB arrive, or the keep-alive ends it" ends "$b"
        sed 's/^/     /' "$work/out"
        check "256 KiB there and back after that" over rxe1 250000 there_and_back "$b" small
        stop
    }
    for end in va vb; do
        echo "     $end: $(tc -s qdisc show dev $end | grep -o 'Sent.*dropped [0-9]*')"
        tc qdisc del dev $end root
    done
}

# ends ADDRESS: the server there ends by itself
ends() {
    client 120 "$work/file" "$1/file"
    [ $? != 124 ]
}

# ---- 64 KiB of locked memory, as an ordinary user ----

locked() {
    label=locked
    chmod 755 "$work"
    check "a server" serve "$a" || return
    check "an ordinary user is told which limit it is" as_user "$a"
    sed 's/^/     /' "$work/out"
    stop
}

as_user() {
    setpriv --reuid 1000 --regid 1000 --clear-groups --bounding-set -all bash -c "
        ulimit -l 64
        $bin/bmi_cp --ping $1 2>&1" >"$work/user"
    cat "$work/user"
    grep -q 'ulimit -l' "$work/user"
}

# ---- unreliable datagrams ----

datagrams() {
    local a=${a/rdm@/dgram@} b=${b/rdm@/dgram@}
    label=datagrams
    export MX_PORT=dgram MX_DGRAM_BACKEND=fabric MX_PROVIDER=verbs
    check "a server" serve "$a" && {
        check "10 MiB there and back" over rxe0 10000000 there_and_back "$a"
        stop
    }
    check "a server at the other device" serve "$b" && {
        check "10 MiB there and back between two devices" over rxe1 10000000 there_and_back "$b"
        stop
    }
    run_programs dgram 'messages restart'
    export MX_PORT=rdm MX_PROVIDER='verbs;ofi_rxm'
    unset MX_DGRAM_BACKEND
}

# ---- a device is removed ----

removed() {
    local client remover
    label=removed
    check "a server" serve "$a" || return
    truncate -s 256M "$work/large"
    within 120 "$bin/bmi_cp" "$work/large" "$a/large" >"$work/client" 2>&1 &
    client=$!
    sent=$(packets)
    check "a transfer is under way" wait_for 60 moved 2000
    # The kernel waits for the processes that have the device open, and librdmacm opens each for the life of its process.
    rdma link delete rxe0 &
    remover=$!
    check "the client's operation ends" wait_for 25 gone "$client"
    sed 's/^/     client: /' "$work/client"
    sed 's/^/     server: /' "$work/server"
    check "the server's log names the device" wait_for 25 grep -q 'rxe0.*has gone' "$work/server"
    stop
    wait "$remover"
    rdma link add rxe0 type rxe netdev va
    wait_for 10 test -e /dev/infiniband/uverbs0
    chmod 666 /dev/infiniband/uverbs*
    check "a server" serve "$a" || return
    check "it is back, and is used" over rxe0 10000000 there_and_back "$a"
    stop
}

gone() {
    ! kill -0 "$1" 2>/dev/null
}

head -c 10485760 /dev/urandom >"$work/file"
cable && devices || { echo "check-rxe: no device"; exit 1; }
echo "the machine is up after $MACHINE_UP s, $(cut -d' ' -f1 /proc/uptime) s with its devices"
for part in $parts; do
    begun=$SECONDS
    "$part"
    stop
    cp "$work/server" "$logs/$part.server" 2>/dev/null
    echo "     $part: $((SECONDS - begun)) s"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
