#!/bin/bash
# Installs into a directory of its own, builds a program against that with pkg-config alone, shared
# and static, runs it, and uninstalls: nothing may be left.
#   install_check.sh BUILD MAKE CC
set -eu

build=$1 make=$2 cc=$3
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
prefix=/opt/bmi_mx

$make --no-print-directory -s install DESTDIR="$stage" PREFIX=$prefix BUILD="$build" >/dev/null
root=$stage$prefix

cat > "$stage/program.c" <<'C'
#include <bmi_mx.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    int size = 0;

    if (strcmp(bmi_mx_ops.method_name, "bmi_mx") != 0)
        return 1;
    if (BMI_mx_get_info(BMI_GET_UNEXP_SIZE, &size) != 0 || size != 16384)
        return 2;
    if (bmi_mx_ops.method_addr_lookup("tcp://elsewhere:3334") != NULL)
        return 3;
    puts(BMI_MX_VERSION);
    return 0;
}
C

# The prefix is where it will be, not where it was staged: the sysroot is what differs.
config() {
    PKG_CONFIG_LIBDIR=$root/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$stage pkg-config "$@" bmi_mx
}
version=$(config --modversion)

# shellcheck disable=SC2046
$cc -std=c99 -Wall -Wextra -Werror -pedantic -o "$stage/shared" "$stage/program.c" \
    $(config --cflags --libs)
readelf -d "$stage/shared" | grep -q 'NEEDED.*\[libbmi_mx\.so\.[0-9]*\]'
[ "$(LD_LIBRARY_PATH=$root/lib "$stage/shared")" = "$version" ]

# The static library by name; everything else as --static says.
static=$(config --static --libs | sed 's/-lbmi_mx/-l:libbmi_mx.a/')
# shellcheck disable=SC2046,SC2086
$cc -std=c99 -o "$stage/static" "$stage/program.c" $(config --cflags) $static
if readelf -d "$stage/static" | grep -q 'NEEDED.*libbmi_mx'; then
    echo "install-check: the static program needs the shared library" >&2
    exit 1
fi
[ "$("$stage/static")" = "$version" ]

$make --no-print-directory -s uninstall DESTDIR="$stage" PREFIX=$prefix BUILD="$build"
left=$(find "$stage" -mindepth 1 ! -name 'program.c' ! -name shared ! -name static \
    ! -path "$stage/opt")
if [ -n "$left" ]; then
    echo "install-check: left behind: $left" >&2
    exit 1
fi
echo "install-check: installed $version, linked both ways, uninstalled to nothing"
