#!/bin/sh
# Makes a static library of one object, in which only the exports of the shared library are visible.
#
#   static.sh ARCHIVE SHARED OUTPUT
#   CROSS  the prefix of binutils for another processor
set -eu
archive=$1 shared=$2 output=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
object=$work/$(basename "$output" .a).o
"${CROSS:-}nm" -D --defined-only "$shared" | awk '{ print $3 }' > "$work/names"
# Section groups are resolved here, as in a final link, which keeps one group of each name and drops the others.
# Rust's only group contains the reference to the personality routine (DW.ref.rust_eh_personality), a name that
# becomes local below. If it remained a group, ours or that of another Rust archive would be dropped in the program's
# link, and the exception tables that refer to it would point at nothing. Nothing else changes: duplicates within the
# archive are still merged, and local names cannot be defined twice.
"${CROSS:-}ld" -r --force-group-allocation --whole-archive "$archive" -o "$work/all.o"
# Removes data that Rust keeps for another optimisation, which linkers with another LLVM fail to read.
"${CROSS:-}objcopy" --remove-section=.llvmbc --remove-section=.llvmcmd --keep-global-symbols="$work/names" \
    "$work/all.o" "$object"
rm -f "$output"
"${CROSS:-}ar" rcs "$output" "$object"
