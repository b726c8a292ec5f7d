# Sourced by scripts that need a root directory with a Debian of their own. `quietly COMMAND...` comes from those.
#   bare_debian SUITE      makes the directory in $root, with debootstrap
#   in_root COMMAND...     runs a command there, as root, with the network

in_root() {
    DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$root" "$@"
}

# From the mirror of this suite that this machine uses, and through apt's proxy, if there is one; the new root uses
# the same.
bare_debian() {
    local mirror proxy=
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $1" | head -n 1)
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    [ -z "$proxy" ] || export http_proxy=$proxy
    quietly debootstrap --variant=minbase "$1" "$root" ${mirror:+"$mirror"}
    cp /etc/resolv.conf "$root/etc/"
    [ -z "$proxy" ] || echo "Acquire::http::Proxy \"$proxy\";" >"$root/etc/apt/apt.conf.d/proxy"
}
