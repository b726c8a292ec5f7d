#!/bin/sh
# Makes a static library of one object, in which only what the shared library exports is visible.
#
#   static.sh ARCHIVE SHARED OUTPUT
#   CROSS  what the names of binutils for another processor begin with
set -eu
archive=$1 shared=$2 output=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
object=$work/$(basename "$output" .a).o
"${CROSS:-}nm" -D --defined-only "$shared" | awk '{ print $3 }' > "$work/names"
# Section groups are resolved here, as in a final link, which keeps one group of each name and drops the others. Rust's only group has
# the reference to the personality routine (DW.ref.rust_eh_personality), a name that becomes local below. Left as a group, ours or another
# Rust archive's would be dropped in the program's link, and the exception tables that refer to it would point at nothing. Nothing else
# changes: duplicates within the archive are still merged, and local names cannot be defined twice.
"${CROSS:-}ld" -r --force-group-allocation --whole-archive "$archive" -o "$work/all.o"
# What Rust keeps for another optimisation goes: linkers with another LLVM fail to read it.
"${CROSS:-}objcopy" --remove-section=.llvmbc --remove-section=.llvmcmd --keep-global-symbols="$work/names" \
    "$work/all.o" "$object"
rm -f "$output"
"${CROSS:-}ar" rcs "$output" "$object"
