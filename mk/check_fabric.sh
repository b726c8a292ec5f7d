#!/bin/bash
# The provider matrix: the offers of each of libfabric's providers on this machine, then every test over each usable
# provider. One line for each provider and step: passed, FAILED or not available.
#   check_fabric.sh BUILD
# MX_LIBFABRIC        another library than the installed one
# LIBFABRIC_INCLUDE   the directory of its headers
# C_TESTS             the C programs to run
set -uo pipefail

build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")/.." && pwd)
cargo=${CARGO:-cargo}
mx_info=$build/bin/mx_info
logs=$build/fabric
failed=0
mkdir -p "$logs"
cd "$here" || exit 1

# say PROVIDER STEP RESULT [DETAIL]: prints a line
say() {
    printf '%-14s %-28s %-14s %s\n' "$1" "$2" "$3" "${4:-}"
}

# step PROVIDER NAME COMMAND...: runs it; the last line with results is the detail
step() {
    local provider=$1 name=$2 begin=$SECONDS log tally
    shift 2
    log=$logs/$(printf %s "$provider-$name" | tr -c 'a-zA-Z0-9_\n-' '+').log
    if "$@" > "$log" 2>&1; then
        tally=$(sums "$log")
        say "$provider" "$name" passed "$tally, $((SECONDS - begin)) s"
    else
        failed=$((failed + 1))
        say "$provider" "$name" FAILED "$(sums "$log"), see $log"
    fi
}

# Prints the numbers of tests that passed and failed, of any test runner.
sums() {
    awk '/^test result: / { passed += $4; failed += $6 }
         /^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$/ { passed += $1; failed += $3 }
         END { printf "%d passed, %d failed", passed, failed }' "$1"
}

rust() {
    CARGO_TERM_COLOR=never "$cargo" test --no-fail-fast "$@"
}

"$mx_info" fabrics || exit 1
echo
mapfile -t usable < <("$mx_info" fabrics --usable)

# The bindings and the simulated library need no provider.
if [ -e "${LIBFABRIC_INCLUDE:-/usr/include}/rdma/fabric.h" ]; then
    step - "layouts against headers" rust -p libfabric-sys --test all layout::
else
    say - "layouts against headers" "not available" "no rdma/fabric.h: LIBFABRIC_INCLUDE="
fi
step - "bindings, loading" rust -p libfabric-sys --lib --test all --test processes
step - "the fake provider" rust -p libfabric-fake
step - "made-up hardware" rust -p mx-sys --test all endpoint::fabrics::
# These use the default provider, or all of them.
step - "the port's own tests" rust -p mx-port-rdm --lib
step "${usable[0]:--}" "endpoints" rust -p mx-sys -p mx-port-rdm --test all -- endpoint:: rdm:: \
    without_fabric:: --skip sim_rdm::

for provider in "${usable[@]}"; do
    export MX_PROVIDER=$provider
    # shellcheck disable=SC2086
    step "$provider" "C suite" "$here/c_tests/run.sh" "$build/c_tests" "$build/lib" rdm \
        ${C_TESTS//fabric_mixed/}
    step "$provider" "file server" "$here/programs/fileserver/check.sh" "$build" rdm
    unset MX_PROVIDER
done
# versions and data_sessions use the kernel's UDP themselves.
datagrams=
for test in $C_TESTS; do
    case $test in versions | data_sessions | fabric_mixed) ;; *) datagrams+=" $test" ;; esac
done
# shellcheck disable=SC2086
MX_DGRAM_BACKEND=fabric step "datagrams" "C suite" "$here/c_tests/run.sh" "$build/c_tests" "$build/lib" dgram $datagrams
MX_DGRAM_BACKEND=fabric step "datagrams" "file server" "$here/programs/fileserver/check.sh" "$build" dgram
if [ "${#usable[@]}" -ge 2 ]; then
    C_TESTS_PROVIDERS=${usable[0]},${usable[1]} \
        step "both" "peers that chose differently" "$here/c_tests/run.sh" "$build/c_tests" \
        "$build/lib" rdm fabric_mixed
else
    say both "peers that chose differently" "not available" "it takes two usable providers"
fi
[ "$failed" = 0 ]
