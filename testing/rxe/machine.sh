#!/bin/bash
# Boots a virtual machine with Debian 12's kernel, which has rdma_rxe and sch_netem, and runs a command in it as root.
# Files that the command writes are lost at the end, except those in the directories that it shares.
#
#   machine.sh [-t SECONDS] [-l DIRECTORY] [-s DIRECTORY]... IMAGE-DIRECTORY COMMAND...
#
#   -t   the machine is stopped after so long (default 600)
#   -s   shares this directory, at the same path there; may be repeated
#   -l   the output of the kernel and of QEMU is written here
#
# RXE_ACCEL=kvm or tcg, RXE_CPUS, RXE_MEMORY (MiB)   otherwise: KVM if it works, two, 3072
#
# Output and exit status are the command's; 124: stopped, 125: the machine failed before the command.
set -u

here=$(cd "$(dirname "$0")" && pwd)
limit=600 logs='' shared=()
while getopts t:l:s: option; do
    case $option in
    t) limit=$OPTARG ;;
    l) logs=$OPTARG ;;
    s) shared+=("$(readlink -f "$OPTARG")") ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
image=$1
shift

job=$(mktemp -d "${TMPDIR:-/tmp}/machine.XXXXXX")
qemu=
finish() {
    if [ -n "$qemu" ]; then
        kill "$qemu" 2>/dev/null
        wait "$qemu" 2>/dev/null
    fi
    if [ -n "$logs" ]; then
        mkdir -p "$logs"
        cp "$job/console" "$job/dmesg" "$job/qemu" "$logs/" 2>/dev/null
    fi
    rm -rf "$job"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

cp "$here/start" "$job/start"
printf 'cd %q || exit\n' "$PWD" >"$job/command"
printf '%q ' "$@" >>"$job/command"
mounts=() number=0
: >"$job/mounts"
for directory in "${shared[@]}"; do
    mounts+=(-virtfs "local,path=$directory,mount_tag=s$number,security_model=none,multidevs=remap")
    echo "s$number $directory" >>"$job/mounts"
    number=$((number + 1))
done

# If the host is itself a guest of pvm, /dev/kvm runs only kernels made for that.
accel=${RXE_ACCEL:-tcg}
if [ -z "${RXE_ACCEL:-}" ] && [ -w /dev/kvm ] && [ ! -d /sys/module/kvm_pvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then
    accel=kvm
fi
case $accel in
kvm) machine=(-accel kvm -cpu host) ;;
*) machine=(-accel 'tcg,thread=multi' -cpu max) ;;
esac

# The command's output is on the virtual console; the kernel's goes to the serial line.
timeout -k 5 "$limit" qemu-system-x86_64 "${machine[@]}" -machine q35 -smp "${RXE_CPUS:-2}" -m "${RXE_MEMORY:-3072}" \
    -nodefaults -no-user-config -display none -no-reboot \
    -kernel "$image/vmlinuz" -initrd "$image/initrd.gz" \
    -append 'console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr random.trust_cpu=on net.ifnames=0' \
    -drive "file=$image/image,format=raw,if=virtio,readonly=on" \
    -virtfs "local,path=$job,mount_tag=job,security_model=none" "${mounts[@]}" \
    -device virtio-rng-pci -serial "file:$job/console" \
    -device virtio-serial-pci -chardev stdio,id=out,signal=off -device virtconsole,chardev=out \
    </dev/null 2>"$job/qemu" &
qemu=$!
wait "$qemu"
ended=$?
qemu=
if [ -s "$job/status" ]; then
    exit "$(cat "$job/status")"
fi
tail -n 10 "$job/qemu" "$job/console" >&2
if [ $ended = 124 ]; then
    echo "machine: stopped after $limit s" >&2
    exit 124
fi
exit 125
