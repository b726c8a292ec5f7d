# Sourced by what needs a root directory of Debian's own; `quietly COMMAND...` is the sourcing script's.
#   bare_debian SUITE      makes it in $root, by debootstrap
#   in_root COMMAND...     there, as root, with the network

in_root() {
    DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$root" "$@"
}

# From the mirror that this machine has this suite from, and through apt's proxy, if it has one; so does what is made.
bare_debian() {
    local mirror proxy=
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $1" | head -n 1)
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    [ -z "$proxy" ] || export http_proxy=$proxy
    quietly debootstrap --variant=minbase "$1" "$root" ${mirror:+"$mirror"}
    cp /etc/resolv.conf "$root/etc/"
    [ -z "$proxy" ] || echo "Acquire::http::Proxy \"$proxy\";" >"$root/etc/apt/apt.conf.d/proxy"
}
