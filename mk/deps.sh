#!/bin/bash
# Installs packages that are missing for build and tests, or lists them.
#   deps.sh RUST_MIN "commands and files" "debian packages" "libfabric's packages, or nothing" CARGO
set -eu

rust_min=$1 commands=$2 packages=$3 fabric_packages=$4 cargo=$5

missing= fabric=
for command in $commands; do
    # Names with a slash are files, not commands.
    [ "$command" != "${command#*/}" ] && [ -e "$command" ] || PATH=$PATH:/sbin:/usr/sbin command -v "$command" >/dev/null || missing+=" $command"
done
# Headers have no command of their own.
if command -v gcc >/dev/null; then
    for header in stdarg.h+stddef.h+stdint.h+setjmp.h+cmocka.h xxhash.h; do
        if ! printf '#include <%s>\n' ${header//+/ } | gcc -E -xc - >/dev/null 2>&1; then
            missing+=" ${header##*+}"
        fi
    done
fi

# libfabric is loaded at run time, so it counts as present if the loader finds it.
if [ -n "$fabric_packages" ]; then
    if [ ! -e "${MX_LIBFABRIC:-}" ] &&
        ! PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q 'libfabric\.so\.1 '; then
        fabric=" libfabric.so.1"
    fi
    [ -e "${LIBFABRIC_INCLUDE:-/usr/include}/rdma/fabric.h" ] || fabric+=" rdma/fabric.h"
fi

at_least() { # at_least 1.85 1.90.1
    [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

look_for_rust() { # sets `rust` to the reason why there is none
    local version
    rust=
    if version=$("$cargo" --version 2>/dev/null | cut -d' ' -f2) && [ -n "$version" ]; then
        at_least "$rust_min" "$version" || rust="cargo is $version"
    else
        rust="no cargo"
    fi
}
look_for_rust

if [ -z "$missing$fabric$rust" ]; then
    exit 0
fi

wanted=
[ -z "$missing" ] || wanted=" $packages"
[ -z "$fabric" ] || wanted+=" $fabric_packages"
# Debian 12's own cargo is 1.63. The one in its security updates for browsers is recent.
[ -z "$rust" ] || wanted+=" cargo-web rustc-web rustfmt-web"

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "deps: installing:$wanted"
    apt-get update -qq
    # shellcheck disable=SC2086
    if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $wanted; then
        hash -r
        look_for_rust
        [ -n "$rust" ] || exit 0
        echo "deps: apt-get installed what its sources have; Debian's security updates have a later Rust" >&2
        missing= fabric=
    else
        echo "deps: apt-get could not install these" >&2
    fi
fi

{
    [ -z "$missing$fabric" ] || echo "deps: missing:$missing$fabric"
    [ -z "$rust" ] || echo "deps: $rust, and Rust $rust_min or later is needed"
    echo "deps: install the Debian or Ubuntu packages:$wanted"
    [ -z "$fabric" ] || echo "deps: or leave rdm out: PORT=\"local tcp\" (libfabric is not needed to build)"
    [ -z "$rust" ] || echo "deps: or get Rust with rustup (rust-lang.org), with rustfmt and clippy"
} >&2
exit 1
