#!/bin/bash
# Tests the packages in a new Debian: installs them, uses them as an ordinary user, builds against them, and removes
# them without a trace. The root is made with debootstrap, in namespaces of its own, and removed at the end.
#   check_deb.sh DIRECTORY-OF-PACKAGES SUITE
set -euo pipefail

packages=$(cd "$1" && pwd) suite=$2
. "$(dirname "$0")/bare_debian.sh"

needs() {
    echo "check-deb: needs $*" >&2
    exit 2
}

if [ -z "${CHECK_DEB_ROOT:-}" ]; then
    [ "$(id -u)" = 0 ] || needs "root, for a root directory of its own"
    command -v debootstrap >/dev/null || needs "debootstrap: apt-get install debootstrap"
    unshare -m -p -n -f true 2>/dev/null || needs "namespaces of mounts, processes and networks (unshare)"
    root=$(mktemp -d "${TMPDIR:-/tmp}/check-deb.XXXXXX")
    trap 'rm -rf --one-file-system "$root" "$root.log"' EXIT
    trap 'exit 1' INT TERM
    CHECK_DEB_ROOT=$root unshare -m -p -f --kill-child --propagation private "$0" "$packages" "$suite"
    exit
fi
root=$CHECK_DEB_ROOT
chmod 755 "$root"

step() {
    printf '%6s s  %s\n' "$SECONDS" "$*"
}

complain() {
    echo "check-deb: $*" >&2
    exit 1
}

# quietly COMMAND...: prints the command's output only if it fails
quietly() {
    "$@" > "$root.log" 2>&1 || { cat "$root.log" >&2; rm -f "$root.log"; complain "failed: $*"; }
    rm -f "$root.log"
}

# as_user SCRIPT: runs it there, as an ordinary user, on a network of its own with nothing but lo
as_user() {
    timeout 120 unshare -n sh -c 'ip link set lo up && exec "$@"' - \
        chroot --userspec=1000:1000 "$root" env -i HOME=/tmp PATH=/usr/bin:/bin LC_ALL=C bash -euc "$1"
}

# Lists every file except those that apt keeps for itself, and every package.
everything() {
    in_root find / -xdev \( -path /proc -o -path /packages -o -path /var/lib/apt -o -path /var/cache \
        -o -path /var/log \) -prune -o -print | sort
    in_root dpkg-query -W -f '${Package} ${Status}\n' | sort
}

step "a bare Debian ($suite)"
bare_debian "$suite"
mount -t proc proc "$root/proc"
cp /etc/hosts "$root/etc/"
mkdir "$root/packages"
cp "$packages"/*.deb "$root/packages/"
rm -f "$root/packages/"*-dbgsym_*
chmod -R a+rX "$root/packages"
quietly in_root apt-get -qq update
everything > "$root/packages/before"

step "libraries and tools installed on it"
quietly in_root bash -c 'apt-get -qq install --no-install-recommends /packages/*[0-9]_*.deb /packages/libna-plugin-mx_*.deb /packages/bmi-mx-tools_*.deb'
in_root bash -c 'ldconfig -p | grep -c "lib\(bmi_mx\|bmi_mx_standalone\|myriexpress\)\.so\.[01] "' | grep -qx 3 ||
    complain "the loader does not know the libraries"

step "used by an ordinary user"
as_user '
    mx_info | grep "^MX "
    mx_pingpong --self -s 8 -S 64K -N 100 -R 1
    mx_stream --self -s 64K -S 64K -N 100 -R 1 -v
    mkdir /tmp/served
    bmi_fileserver mx://localhost:3 /tmp/served > /tmp/said &
    server=$!
    until grep -q serving /tmp/said; do kill -0 $server; sleep 0.1; done
    head -c 5000000 /dev/urandom > /tmp/file
    for port in local tcp; do
        MX_PORT=$port bmi_cp /tmp/file mx://localhost:3/file
        MX_PORT=$port bmi_cp mx://localhost:3/file /tmp/back
        cmp /tmp/file /tmp/back
    done
    mx_info endpoints -e 3 | head -n 3
    mx_counters -e 3 --prometheus | grep "^mx_packets_in_total"
    bmi_mx_perf latency --port local --sizes 8 --repeats 1
    kill $server
    wait $server
    rm -r /tmp/said /tmp/served /tmp/file /tmp/back
'

step "built against"
quietly in_root bash -c 'apt-get -qq install --no-install-recommends gcc libc6-dev pkg-config /packages/*-dev_*.deb'
in_root bash -c 'test -e "$(pkg-config --variable=plugindir libna_plugin_mx)/libna_plugin_mx.so"' ||
    complain "Mercury's plugin is not where its file says"
cat > "$root/packages/program.c" <<'C'
#include <bmi_mx.h>
#include <mx_extensions.h>
#include <mx_io.h>
#include <myriexpress.h>
#include <stdio.h>

int main(void)
{
    if (mx_init() != MX_SUCCESS || mx_finalize() != MX_SUCCESS)
        return 1;
    puts(bmi_mx_ops.method_name);
    return 0;
}
C
cat > "$root/packages/standalone.c" <<'C'
#include <bmi_mx_standalone.h>

int main(void)
{
    return bmi_mx_ops.method_name[0] != 'b';
}
C
as_user '
    cd /tmp
    gcc -o shared /packages/program.c $(pkg-config --cflags --libs bmi_mx myriexpress)
    ./shared
    gcc -o static /packages/program.c $(pkg-config --static --cflags --libs bmi_mx myriexpress |
        sed "s/-l\(bmi_mx\|myriexpress\)/-l:lib\1.a/g")
    ./static
    gcc -o standalone /packages/standalone.c $(pkg-config --cflags --libs bmi_mx_standalone)
    ./standalone
    rm shared static standalone
'

step "removed"
quietly in_root bash -c '
    apt-get -qq purge $(for it in /packages/*.deb; do dpkg-deb -f "$it" Package; done) gcc libc6-dev pkg-config
    apt-get -qq autoremove --purge'
everything > "$root/packages/after"
diff "$root/packages/before" "$root/packages/after" || complain "left behind: see above (>) or taken away (<)"
! in_root ldconfig -p | grep -E 'libbmi_mx|libmyriexpress' || complain "the loader still knows them"
step "nothing is left of it: $(wc -l < "$root/packages/before") files and packages as before"
