#!/bin/sh
# Large messages over one data link and over four, by turns, where each TCP connection has a path of its own of RATE:
# like a bond or equal-cost paths whose hash puts no two connections on one path. For make bench-links; needs root,
# ip, tc, nft.
#
#     mk/links.sh BINDIR LIBRARY [ROUNDS]
#
# The paths are classes of HTB in two namespaces. nftables numbers connections in the order in which they begin, and
# gives each its class in both directions, so that random port numbers have no influence.
# each its class in both directions, so that random port numbers decide nothing.
set -eu

bin=$1 library=$2 rounds=${3:-3}
rate=${RATE:-1gbit} sizes=${SIZES:-4M,16M,64M}
server=links-s-$$ client=links-c-$$ names="links-s-$$ links-c-$$"
classes=6 # of the connection of the session, and of more data links than there are
peer=

clean_up() {
    [ -z "$peer" ] || kill "$peer" 2>/dev/null || true
    peer=
    for name in $names; do
        ip netns del "$name" 2>/dev/null || true
    done
}
trap clean_up EXIT INT TERM

# Gives the Nth connection that namespace $1 sees begin, by the packet $2, the class 1:1N.
shape() {
    map=
    ip netns exec "$1" tc qdisc add dev veth root handle 1: htb default 10
    for nth in $(seq 0 $((classes - 1))); do
        ip netns exec "$1" tc class add dev veth parent 1: classid "1:1$nth" htb rate "$rate" burst 64k cburst 64k quantum 60000
        map="$map${map:+, }$nth : 1:1$nth"
    done
    ip netns exec "$1" nft -f - <<END
table ip links {
    chain input {
        type filter hook input priority 0
        $3 iifname "veth" tcp flags & (syn | ack) == syn ct mark set numgen inc mod $classes
    }
    chain output {
        type filter hook output priority 0
        $2 oifname "veth" tcp flags & (syn | ack) == syn ct mark set numgen inc mod $classes
        meta l4proto tcp meta priority set ct mark map { $map }
    }
}
END
}

# Makes one run with $1 data links.
measure() {
    for name in $names; do
        ip netns add "$name"
        ip -n "$name" link set lo up
    done
    ip -n "$server" link add veth type veth peer name veth netns "$client"
    ip -n "$server" addr add 10.91.0.1/24 dev veth
    ip -n "$client" addr add 10.91.0.2/24 dev veth
    for name in $names; do
        ip -n "$name" link set veth up
    done
    shape "$server" '#' ''
    shape "$client" '' '#'
    export MX_PORT=tcp MX_TCP_LINKS="$1"
    ip netns exec "$server" "$bin/bmi_mx_perf" --listen mx://10.91.0.1:5 --library "$library" --no-pin >/dev/null &
    peer=$!
    sleep 1
    ip netns exec "$client" "$bin/bmi_mx_perf" bandwidth --connect mx://10.91.0.1:5 --port tcp --sizes "$sizes" --repeats 3 \
        --no-pin --library "$library" --json | sed "s/^/links $1: /"
    clean_up
}

uptime
for round in $(seq "$rounds"); do
    for links in 1 4; do
        measure "$links"
    done
done
uptime
