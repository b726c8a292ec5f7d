#!/bin/bash
# Links the static libraries into hosts in C and Rust, together and with another Rust archive. Every part of the
# program panics and catches its panic, for which each needs exception tables and a personality routine of its own.
#
#   static_check.sh LIBDIR CC [RUSTC]
#
# The libraries panic in Rust's std, which relies on a readable clock: the program's clock_gettime fails on request.
set -eu

libdir=$(cd "$1" && pwd) cc=$2 rustc=${3:-rustc}
include=$(cd "$(dirname "$0")/../include" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
passed=0

complain() {
    echo "static-check: $*" >&2
    exit 1
}

# libraries_catch() is true if each linked library has caught a panic of its own.
cat > calls.c <<'C'
#define _GNU_SOURCE
#ifdef WITH_bmi_mx
#include <bmi_mx.h>
#define BMI_INITIALIZE() BMI_mx_initialize(NULL, 0, BMI_INIT_SERVER, NULL)
#endif
#ifdef WITH_bmi_mx_standalone
#include <bmi_mx_standalone.h>
#define BMI_INITIALIZE() BMI_mx_initialize(NULL, 0, BMI_INIT_SERVER)
#endif
#ifdef WITH_myriexpress
#include <myriexpress.h>
#endif
#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static bool is_broken;

/* Fails once when told to. Not the clock of the date: the line about a panic begins with that. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (is_broken && clock == CLOCK_MONOTONIC) {
        is_broken = false;
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_clock_gettime, clock, now);
}

int libraries_catch(void)
{
#ifdef WITH_myriexpress
    mx_endpoint_addr_t address;

    if (mx_init() != MX_SUCCESS)
        return 0;
    mx_set_error_handler(MX_ERRORS_RETURN);
    is_broken = true;
    if (mx_connect(NULL, 1, 1, 0, 1, &address) != MX_FAILURE || is_broken || mx_finalize() != MX_SUCCESS)
        return 0;
#endif
#ifdef BMI_INITIALIZE
    /* Refuses a server without an address, and reads the clock for the line that says so. */
    is_broken = true;
    if (BMI_INITIALIZE() != -BMI_EIO || is_broken)
        return 0;
#endif
    return 1;
}
C

cat > host.c <<'C'
int libraries_catch(void);
#ifdef WITH_FOREIGN
int foreign_catches(void);
#else
#define foreign_catches() 1
#endif

int main(void)
{
    return libraries_catch() && foreign_catches() && libraries_catch() ? 0 : 1;
}
C

# A foreign archive, and a host in Rust.
cat > foreign.rs <<'RUST'
#[unsafe(no_mangle)]
extern "C" fn foreign_catches() -> i32 {
    i32::from(std::panic::catch_unwind(|| panic!("the foreign archive's")).is_err())
}
RUST

cat > host.rs <<'RUST'
unsafe extern "C" {
    safe fn libraries_catch() -> i32;
}

fn main() {
    let catches = || std::panic::catch_unwind(|| panic!("the host's")).is_err();
    assert!(catches() && libraries_catch() == 1 && catches());
}
RUST

# try PROGRAM COMMAND...: the command links it, and it succeeds
try() {
    local program=$1
    shift
    "$@" >said 2>&1 || complain "$program does not link: $(tail -n 5 said)"
    timeout 60 "./$program" >said 2>&1 || complain "$program ends with $?: $(tail -n 5 said)"
    passed=$((passed + 1))
}

"$rustc" --edition 2024 --crate-type staticlib -o libforeign.a foreign.rs
private=(-lpthread -lm -ldl -lutil -lrt)
# With a clash, the order would decide whose names the others get.
for libraries in 'bmi_mx myriexpress' 'myriexpress bmi_mx_standalone'; do
    name=${libraries// /+}
    archives=() with=() rust=()
    for library in $libraries; do
        archives+=("$libdir/lib$library.a") with+=("-DWITH_$library") rust+=(-l "static=$library")
    done
    "$cc" -std=c11 -Wall -Wextra -Werror "${with[@]}" -I"$include" -c -o calls.o calls.c
    rm -f libcalls.a
    ar rcs libcalls.a calls.o
    for way in '' -static -static-pie; do
        try "c-$name$way" "$cc" ${way:+"$way"} -o "c-$name$way" host.c calls.o "${archives[@]}" "${private[@]}"
    done
    try "c-$name-foreign" "$cc" -DWITH_FOREIGN -o "c-$name-foreign" host.c calls.o "${archives[@]}" libforeign.a "${private[@]}"
    try "c-foreign-$name" "$cc" -DWITH_FOREIGN -o "c-foreign-$name" host.c calls.o libforeign.a "${archives[@]}" "${private[@]}"
    for model in pic static; do
        try "rust-$name-$model" "$rustc" --edition 2024 -C relocation-model=$model -L native=. -L native="$libdir" \
            -l static=calls "${rust[@]}" -o "rust-$name-$model" host.rs
    done
done
echo "static-check: $passed passed, linked beside each other and other Rust, and every panic caught"
