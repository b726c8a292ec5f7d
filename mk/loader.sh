#!/bin/bash
# Updates the loader's cache after libraries were installed into a directory of this machine, or with --gone removed
# from it, or prints a line with the command that a person has to run.
#   loader.sh [--gone] DIRECTORY
set -eu

gone=
if [ "$1" = --gone ]; then
    gone=true
    shift
fi
directory=$(realpath -m "$1")
PATH=$PATH:/sbin:/usr/sbin

# on_path: the loader searches that directory by itself
on_path() {
    local known
    for known in $(ldconfig -N -X -v 2>/dev/null | sed -n 's/^\(\/[^:]*\):.*/\1/p'); do
        [ "$(realpath -m "$known")" != "$directory" ] || return 0
    done
    return 1
}

if on_path; then
    if [ "$(id -u)" = 0 ]; then
        ldconfig
        echo "ldconfig: the loader knows what is in $directory"
    elif [ -z "$gone" ]; then
        echo "now run, as root: ldconfig"
    fi
elif [ -z "$gone" ]; then
    echo "$directory is not on the loader's path. For all programs, as root:"
    echo "    echo $directory > /etc/ld.so.conf.d/bmi_mx.conf && ldconfig"
    echo "or for those of one shell: export LD_LIBRARY_PATH=$directory"
fi
