#!/bin/bash
# Installs into a directory of its own, compiles each header alone, builds programs with pkg-config alone, in C and
# C++, shared and static, with each library and with both, runs them, and uninstalls, after which nothing may remain.
#   install_check.sh BUILD MAKE CC CXX
set -eu

build=$1 make=$2 cc=$3 cxx=$4
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
prefix=/opt/bmi_mx
programs=$stage/programs
mkdir "$programs"

complain() {
    echo "install-check: $*" >&2
    exit 1
}

$make --no-print-directory -s install DESTDIR="$stage" PREFIX=$prefix BUILD="$build" >/dev/null
root=$stage$prefix

cat > "$programs/bmi_mx.c" <<'C'
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

cat > "$programs/bmi_mx_standalone.c" <<'C'
#include <bmi_mx_standalone.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    int port = 0;

    if (strcmp(bmi_mx_ops.method_name, "bmi_mx") != 0 || sizeof(bmi_mx_ops) != 176)
        return 1;
    if (BMI_mx_get_info(BMI_TCP_GET_PORT, &port) != -BMI_ENODEV)
        return 2;
    puts(BMI_MX_VERSION);
    return 0;
}
C

# A program that sends a message to itself.
cat > "$programs/myriexpress.c" <<'C'
#include <mx_extensions.h>
#include <mx_internals/mx__driver_interface.h>
#include <mx_internals/mx__fops.h>
#include <mx_io.h>
#include <myriexpress.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    char text[] = "hello, me", back[16] = "";
    mx_segment_t out = {text, sizeof(text)}, in = {back, sizeof(back)};
    mx_request_t sent, received;
    mx_endpoint_addr_t me;
    mx_endpoint_t endpoint;
    mx_status_t status;
    uint32_t done = 0;

    if (mx_init() != MX_SUCCESS ||
        mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, 0, NULL, 0, &endpoint) != MX_SUCCESS)
        return 1;
    mx_get_endpoint_addr(endpoint, &me);
    mx_irecv(endpoint, &in, 1, 7, MX_MATCH_MASK_NONE, NULL, &received);
    mx_isend(endpoint, &out, 1, me, 7, NULL, &sent);
    if (mx_wait(endpoint, &received, 10000, &status, &done) != MX_SUCCESS || !done ||
        status.code != MX_STATUS_SUCCESS || strcmp(text, back) != 0)
        return 2;
    mx_forget(endpoint, &sent);
    mx_close_endpoint(endpoint);
    mx_finalize();
    puts(MYRIEXPRESS_VERSION);
    return 0;
}
C

cat > "$programs/both.c" <<'C'
#include <bmi_mx.h>
#include <myriexpress.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    if (strcmp(bmi_mx_ops.method_name, "bmi_mx") != 0 || mx_init() != MX_SUCCESS ||
        mx_finalize() != MX_SUCCESS || strcmp(BMI_MX_VERSION, MYRIEXPRESS_VERSION) != 0)
        return 1;
    puts(MYRIEXPRESS_VERSION);
    return 0;
}
C

# The prefix is where the files will be, not where they were staged; the sysroot is the difference.
config() {
    PKG_CONFIG_LIBDIR=$root/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$stage pkg-config "$@"
}

# The plugin is where its file says, and has its table.
plugin=$(config --variable=plugindir libna_plugin_mx)/libna_plugin_mx.so
[ -e "$plugin" ] || plugin=$stage$plugin
nm -D --defined-only "$plugin" | grep -q ' na_mx_class_ops_g$' || complain "no table in $plugin"
[ "$(nm -D --defined-only "$plugin" | wc -l)" = 1 ] || complain "$plugin exports more than its table"

# runs PROGRAM: it succeeds, and prints the version
runs() {
    [ "$(LD_LIBRARY_PATH=$root/lib "$1")" = "$version" ] || complain "$1 does not run"
}

# check NAME PACKAGE...: builds NAME.c with the shared libraries and with the static ones
check() {
    local name=$1 package flags
    shift
    flags=$(config --cflags --libs "$@")
    # shellcheck disable=SC2086
    $cc -std=c99 -Wall -Wextra -Werror -pedantic -o "$programs/$name-c" "$programs/$name.c" $flags
    # shellcheck disable=SC2086
    $cxx -x c++ -std=c++17 -Wall -Wextra -Werror -pedantic -o "$programs/$name-c++" \
        "$programs/$name.c" -x none $flags
    runs "$programs/$name-c"
    runs "$programs/$name-c++"
    # The static libraries by name; everything else as --static says.
    flags=$(config --static --cflags --libs "$@")
    for package in "$@"; do
        readelf -d "$programs/$name-c" | grep -q "NEEDED.*\[lib$package\.so\.[0-9]*\]" ||
            complain "$name does not need lib$package.so by its soname"
        flags=${flags//-l$package/-l:lib$package.a}
    done
    # shellcheck disable=SC2086
    $cc -std=c99 -o "$programs/$name-static" "$programs/$name.c" $flags
    for package in "$@"; do
        if readelf -d "$programs/$name-static" | grep -q "NEEDED.*lib$package"; then
            complain "the static $name needs lib$package.so"
        fi
    done
    runs "$programs/$name-static"
    # Without any shared library. The linker warns of libraries that such a program cannot load.
    flags=$(config --static --cflags --libs "$@")
    # shellcheck disable=SC2086
    $cc -std=c99 -static -o "$programs/$name-alone" "$programs/$name.c" $flags \
        2>"$programs/warnings" || complain "$name does not link with -static: $(cat "$programs/warnings")"
    if readelf -d "$programs/$name-alone" | grep -q NEEDED; then
        complain "the -static $name needs a shared library"
    fi
    runs "$programs/$name-alone"
}

# A configure script includes a header alone, and passes NULL to its functions.
for header in $(cd "$root/include" && find . -name '*.h' -printf '%P\n'); do
    printf '#include <%s>\nextern void *const nothing;\nvoid *const nothing = NULL;\n' "$header" \
        > "$programs/alone.c"
    $cc -std=c99 -Wall -Wextra -Werror -pedantic -I"$root/include" -fsyntax-only \
        "$programs/alone.c" || complain "$header does not compile alone as C99"
    $cxx -x c++ -std=c++17 -Wall -Wextra -Werror -pedantic -I"$root/include" -fsyntax-only \
        "$programs/alone.c" || complain "$header does not compile alone as C++"
done

version=$(config --modversion bmi_mx)
[ "$(config --modversion myriexpress)" = "$version" ] || complain "two versions"
check bmi_mx bmi_mx
check bmi_mx_standalone bmi_mx_standalone
check myriexpress myriexpress
check both bmi_mx myriexpress

# works PROGRAM OPTIONS...: it succeeds; its output is printed only if it does not
works() {
    timeout 120 env -u LD_LIBRARY_PATH "$moved/bin/$@" >"$programs/said" 2>&1 ||
        complain "$*, elsewhere: $(cat "$programs/said")"
}

# lacks LIBRARY PROGRAM OPTIONS...: it fails, and prints in one line which library it did not find, and where
lacks() {
    local library=$1
    shift
    ! timeout 120 "$moved/bin/$@" >"$programs/said" 2>&1 || complain "$* works without $library"
    { [ "$(wc -l < "$programs/said")" = 1 ] &&
        grep -q "^$1: .*$library.*looked for in.*$moved/bin/../lib" "$programs/said"; } ||
        complain "$* does not say that $library is not there: $(cat "$programs/said")"
}

# A program finds the libraries beside it, wherever the prefix is.
moved=$stage/elsewhere
mv "$root" "$moved"
works mx_pingpong --self -s 8 -N 10 -R 1
works mx_info
works mx_counters --prometheus
works bmi_mx_perf latency --port local --sizes 8 --repeats 1
works bmi_mx_torture --programs 1
env -u LD_LIBRARY_PATH "$moved/bin/bmi_cp" "$0" mx://no-such-host.invalid:3/nothing 2>&1 |
    grep -q "^bmi_cp: .* the host is unknown" || complain "bmi_cp, elsewhere, does not load the method"
lacks libnowhere.so bmi_mx_perf latency --library libnowhere.so
lacks libnowhere.so bmi_mx_perf mx --mx-library libnowhere.so
lacks libnowhere.so bmi_mx_torture --library libnowhere.so
BMI_MX_LIBRARY=libnowhere.so lacks libnowhere.so bmi_cp "$0" mx://localhost:3/nothing
mv "$moved" "$root"
# A page is found under any of its names.
[ -f "$root/share/man/man3/mx_issend.3" ] || complain "no page for mx_issend"

$make --no-print-directory -s uninstall DESTDIR="$stage" PREFIX=$prefix BUILD="$build"
left=$(find "$stage" -mindepth 1 ! -path "$programs" ! -path "$programs/*" ! -path "$stage/opt")
[ -z "$left" ] || complain "left behind: $left"
echo "install-check: installed $version, linked every way, uninstalled to nothing"
