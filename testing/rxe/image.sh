#!/bin/bash
# Makes the files that machine.sh boots: Debian 12's kernel, a first root directory that mounts the rest, and an image
# with the programs that the checks need. As root, because of debootstrap.
#   image.sh DIRECTORY
set -euo pipefail

mkdir -p "$1"
out=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
suite=bookworm
packages='busybox-static kmod iproute2 procps rdma-core ibverbs-providers ibverbs-utils libfabric1 libfabric-bin
          libxxhash0 libcmocka0 nftables strace gdb'
# Modules of the kernel, and those that they need; its other drivers stay in the package.
first='virtio_pci virtio_blk virtio_console ext4 9p 9pnet_virtio overlay virtio-rng'
# rxe asks for crc32 by the name of the algorithm.
later='rdma_rxe crc32_generic rdma_ucm ib_uverbs ib_umad veth sch_netem sch_tbf sch_htb sch_ingress cls_u32 act_mirred ifb
       bridge macvlan dummy tun nf_tables nft_nat nft_masq nft_chain_nat nft_ct nft_reject_inet nft_limit'

. "$here/../../mk/bare_debian.sh"

needs() {
    echo "image: needs $*" >&2
    exit 2
}

# quietly COMMAND...: prints the command's output only if it fails
quietly() {
    "$@" >"$out/log" 2>&1 || { tail -n 20 "$out/log" >&2; echo "image: failed: $*" >&2; exit 1; }
}

[ "$(id -u)" = 0 ] || needs "root, for debootstrap"
root=$out/root
if mountpoint -q "$root/proc"; then umount "$root/proc"; fi
rm -rf --one-file-system "$root" "$out/first"
trap 'if mountpoint -q "$root/proc"; then umount "$root/proc"; fi; rm -rf --one-file-system "$root" "$out/first"' EXIT
trap 'exit 1' INT TERM

echo "image: a Debian ($suite) by debootstrap"
bare_debian "$suite"
# shellcheck disable=SC2086
quietly in_root apt-get -q -y --no-install-recommends install $packages
# For checks that run as an ordinary user.
echo 'user:x:1000:1000::/tmp:/bin/bash' >>"$root/etc/passwd"
echo 'user:x:1000:' >>"$root/etc/group"

kernel=$(in_root apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
version=${kernel#linux-image-}
echo "image: its kernel, $version"
quietly in_root sh -c "cd /tmp && apt-get -q -o APT::Sandbox::User=root download $kernel"
kernel=$root/tmp/kernel
dpkg-deb -x "$root"/tmp/linux-image-*.deb "$kernel"
cp "$kernel/boot/vmlinuz-$version" "$out/vmlinuz"
in_root depmod -b /tmp/kernel "$version"

# modules NAME...: prints their files, in the order in which they are loaded, once each
modules() {
    local name
    for name in "$@"; do
        in_root modprobe -d /tmp/kernel -S "$version" --show-depends "$name" 2>/dev/null || true
    done | awk -v root="$root" '$1 == "insmod" && !seen[$2]++ { print root $2 }'
}

# The first root directory.
mkdir -p "$out"/first/initrd/{bin,dev,proc,sys,modules,image,written,root}
cp "$root/bin/busybox" "$out/first/initrd/bin/"
cp "$here/init" "$out/first/initrd/init"
# shellcheck disable=SC2086
modules $first | while read -r file; do
    cp "$file" "$out/first/initrd/modules/"
    echo "/modules/${file##*/}"
done >"$out/first/order"
mv "$out/first/order" "$out/first/initrd/order"
(cd "$out/first/initrd" && find . | "$root/bin/busybox" cpio -o -H newc 2>/dev/null) | gzip -1 >"$out/initrd.gz"

# Modules that are loaded later go into the image.
mkdir -p "$root/lib/modules/$version"
cp "$kernel/lib/modules/$version"/modules.{builtin,builtin.modinfo,order} "$root/lib/modules/$version/"
# shellcheck disable=SC2086
modules $first $later | while read -r file; do
    to=$root${file#"$kernel"}
    mkdir -p "${to%/*}"
    cp "$file" "$to"
done
in_root depmod "$version"

rm -rf "$root"/tmp/* "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root/usr/share/doc" \
    "$root/usr/share/locale" "$root/usr/share/man"
mkdir -p "$root/job" "$root/written"
echo "image: a file system of it"
rm -f "$out/image"
size=$(($(du -sm --one-file-system "$root" | cut -f1) * 13 / 10 + 64))
truncate -s "${size}M" "$out/image.new"
quietly mke2fs -q -t ext4 -d "$root" -O ^has_journal -m 0 "$out/image.new"
rm -f "$out/log"
mv "$out/image.new" "$out/image"
ls -lh "$out/vmlinuz" "$out/initrd.gz" "$out/image"
