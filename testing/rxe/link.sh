# Sourced in the machine: two ends of a cable in one network namespace, va 10.9.0.1 and vb 10.9.0.2, each with a
# device of soft-RoCE, rxe0 and rxe1. The devices know only the first namespace. Packets from one end to the other
# really cross the cable, because the addresses of the other end are not looked up in the table of local ones until
# they have arrived.

cable() {
    local end
    modprobe -a veth sch_netem
    # A queue of 1000 packets, the default, loses some of the eight reads of 256 KiB that a link has under way.
    sysctl -qw net.core.netdev_max_backlog=100000
    ip link add va type veth peer name vb
    ip addr add 10.9.0.1/32 dev va
    ip addr add 10.9.0.2/32 dev vb
    for end in all va vb; do
        sysctl -qw "net.ipv4.conf.$end.accept_local=1" "net.ipv4.conf.$end.rp_filter=0" "net.ipv4.conf.$end.arp_ignore=1"
    done
    ip link set va up
    ip link set vb up
    ip route add 10.9.0.2/32 dev va src 10.9.0.1
    ip route add 10.9.0.1/32 dev vb src 10.9.0.2
    ip rule show | grep -q '^10:' && return
    ip rule add pref 10 iif va lookup local
    ip rule add pref 11 iif vb lookup local
    ip rule add pref 12 to 127.0.0.0/8 lookup local
    ip rule add pref 13 from 10.9.0.1 to 10.9.0.1 lookup local
    ip rule add pref 14 from 10.9.0.2 to 10.9.0.2 lookup local
    ip rule del pref 0
}

devices() {
    modprobe -a rdma_rxe rdma_ucm ib_uverbs ib_umad
    rdma link add rxe0 type rxe netdev va && rdma link add rxe1 type rxe netdev vb || return
    until [ -e /dev/infiniband/uverbs1 ]; do sleep 0.2; done
    # As in Debian's rules for udev.
    chmod 666 /dev/infiniband/uverbs* /dev/infiniband/rdma_cm
}

# crossed DEVICE: prints the number of packets that it has sent
crossed() {
    cat "/sys/class/infiniband/$1/ports/1/hw_counters/sent_pkts"
}
