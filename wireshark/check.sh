#!/usr/bin/env bash
# Tests mx.lua on packets of every kind, on a capture of the running file server, and on nonsense.
#   check.sh BUILD-DIRECTORY [PORTS]  ends with the line 'N passed, M failed'
set -uo pipefail

. "$(dirname "$0")/../mk/checks.sh"
here=$(cd "$(dirname "$0")" && pwd)
top=$here/..
label=dissector
export LC_ALL=C

shark() {
    HOME=$work tshark -X "lua_script:$here/mx.lua" "$@" 2>> "$work/errors"
}

# le BYTES NUMBER: prints it in hexadecimal, little endian
le() {
    local text at=0
    text=$(printf '%0*x' $((2 * $1)) "$2")
    while [ $at -lt $((2 * $1)) ]; do
        at=$((at + 2))
        printf '%s' "${text:$((2 * $1 - at)):2}"
    done
}

# packet KIND WORD LENGTH AUX [BODY]: prints a packet with 7 credits, 9 wanted, slots 0x21, epoch 5
packet() {
    local body=${5:-}
    le 1 "$1"; printf 054d58
    le 4 $((${#body} / 2)); le 8 "$2"; le 4 "$3"; le 4 "$4"; le 4 7; le 4 $((0x21000009)); printf '%s' "$body"
}

# capture FILE KIND HEX...: writes a file with these as TCP (-T) or UDP (-u) payloads
capture() {
    local file=$1 kind=$2
    shift 2
    for hex in "$@"; do
        echo "I"
        printf '000000 '
        sed 's/../& /g' <<< "$hex"
    done | sed '/^I$/d' | text2pcap -q "$kind" 50000,14003 - "$file" 2>> "$work/errors"
}

# fields FILE FILTER FIELD=VALUE...: tshark finds these in it
fields() {
    local file=$1 filter=$2 names=() wanted=() got field
    shift 2
    for field; do
        names+=(-e "${field%%=*}")
        wanted+=("${field#*=}")
    done
    got=$(shark -r "$file" -Y "$filter" -T fields -E separator=' ' "${names[@]}")
    [ "$got" = "${wanted[*]}" ] || { echo "$filter: '$got', not '${wanted[*]}'"; return 1; }
}

repeated() { printf "$1%.0s" $(seq "$2"); }

preamble=934d585443500100
hello=$(printf 4d587331; le 2 8; le 2 3; le 4 $((0x70766673)); le 4 3; le 6 $((0x4d58c0a80001)); le 2 7; le 8 77
    le 6 $((0x4d58c0a80002)); le 2 12; le 4 4; le 4 5; repeated ab 16; le 4 256; le 4 9; printf 6d783a2f)
claim=$(le 8 31; le 8 $((0x4d58c0a80007)); le 8 $((0x4d58c0a80009)); repeated cd 16)
name=$(printf 'mx://a:0:3\0' | od -An -tx1 | tr -d ' \n')
message=$((0xe << 60 | 12 << 32 | 345))
capture "$work/kinds.pcap" -T $preamble \
    "$(packet 1 11 0 0 "$hello")" "$(packet 2 11 0 3 "$hello$claim")" "$(packet 3 $message 3 1 616263)" \
    "$(packet 4 $((0xd << 60 | 200 << 52 | 1 << 32 | 9)) 70000 0 "$(le 8 21; le 8 22; le 8 23)")" \
    "$(packet 5 21 4096 0 "$(le 8 31; le 4 65536)")" "$(packet 6 31 4096 0 6465)" "$(packet 7 21 70000 1)" \
    "$(packet 8 21 0 1)" "$(packet 9 0 0 0)" "$(packet 10 0 0 0)" "$(packet 11 41 0 0)" "$(packet 12 41 0 0)" \
    "$(packet 13 0 5 0)" "$(packet 14 0 4 0)" \
    "$(packet 15 0 0 0 "$claim")" \
    "$(packet 17 0 0 0 "$(le 8 $((0x4d58c0a80001)); le 8 77; le 4 3; le 4 0; repeated ab 16; repeated ef 32)")" \
    "$(packet 18 0 0 0 "$(repeated ef 32)")" \
    "$(packet 3 $((0xc << 60 | 6 << 32 | 256)) 11 0 "$name")" "$(packet 99 0 0 0)" "$(packet 9 0 0 0 00)" \
    "$(packet 22 0 4 0 4142)" "$(packet 23 0 0 0)" \
    "$(packet 24 51 4096 7 "$(le 8 32; le 4 65536; le 4 2; le 8 300; le 4 70000)")" \
    "$(packet 25 52 80000 0 "$(le 8 22; le 8 301)")"

# kind FIELD=VALUE...: the packet of that kind has these
kind() {
    local filter=$1
    shift
    check "$filter" fields "$work/kinds.pcap" "$filter" "$@"
}

kind 'mx_tcp.preamble' mx_tcp.version=1
kind 'mx.kind == 1' mx.connect_id=0x000000000000000b mx.version=8 mx.association=3 mx.key=0x70766673 \
    mx.endpoint=3 mx.nic=0x00004d58c0a80001 mx.session=0x000000000000004d mx.to_nic=0x00004d58c0a80002 mx.to_endpoint=4 \
    mx.nonce="$(repeated ab 16)" mx.oldest=7 mx.features=0x00000005 mx.method_version=0x00000100 mx.given_id=9 mx.name=mx:/
kind 'mx.kind == 2' mx.reply=3 mx.session=0x000000000000004d mx.claimed=0x000000000000001f
kind 'mx.kind == 3 && mx.tag == 345' mx.epoch=5 mx.body_length=3 mx.bits=0xe000000c00000159 mx.type=0x0000000e \
    mx.peer=12 mx.length=3 mx.slot=1 mx.data=616263 mx.credit=7 mx.wanted=9 mx.slots=0x21
kind 'mx.kind == 4' mx.type=0x0000000d mx.class=200 mx.peer=1 mx.tag=9 mx.length=70000 mx.send_id=0x0000000000000015 \
    mx.remote_address=0x0000000000000016 mx.remote_key=0x0000000000000017
kind 'mx.kind == 5' mx.send_id=0x0000000000000015 mx.offset=4096 mx.receive_id=0x000000000000001f mx.wanted_length=65536
kind 'mx.kind == 6' mx.receive_id=0x000000000000001f mx.offset=4096 mx.data=6465
kind 'mx.kind == 7' mx.send_id=0x0000000000000015 mx.transferred=70000 mx.notify=1
kind 'mx.kind == 8' mx.send_id=0x0000000000000015 mx.answer=1
kind 'mx.kind == 9 && mx.body_length == 0' mx.credit=7 mx.wanted=9
kind 'mx.kind == 10' mx.epoch=5
kind 'mx.kind == 11' mx.question=41
kind 'mx.kind == 12' mx.question=41
kind 'mx.kind == 13' mx.asked_back=5
kind 'mx.kind == 14' mx.given_back=4
kind 'mx.kind == 15' mx.claimed=0x000000000000001f mx.to_nic=0x00004d58c0a80007 mx.other_nic=0x00004d58c0a80009 mx.proof="$(repeated cd 16)"
kind 'mx.kind == 17' mx.endpoint=3 mx.session=0x000000000000004d mx.proof="$(repeated ef 32)"
kind 'mx.kind == 18' mx.proof="$(repeated ef 32)"
kind 'mx.type == 0xc' mx.peer=6 mx.tag=256 mx.name=mx://a:0:3
kind 'mx.bad_kind' mx.kind=99
kind 'mx.bad_body' mx.kind=9 mx.body_length=1
kind 'mx.kind == 22' mx.fabric=4 mx.address=4142
kind 'mx.kind == 23' mx.epoch=5
kind 'mx.kind == 24' mx.region=0x0000000000000033 mx.offset=4096 mx.attempt=7 mx.receive_id=0x0000000000000020 \
    mx.wanted_length=65536 mx.data_link=2 mx.region_offset=300 mx.length=70000
kind 'mx.kind == 25' mx.region=0x0000000000000034 mx.length=80000 mx.send_id=0x0000000000000016 mx.region_offset=301

# Nonsense: the saved inputs of the fuzzers, as datagrams and behind a preamble.
survives() {
    local hex files=("$top"/testing/fuzz/corpus/*/*) all=()
    [ ${#files[@]} -gt 100 ] || return 1
    for file in "${files[@]}"; do
        hex=$(head -c 1400 "$file" | od -An -v -tx1 | tr -d ' \n')
        [ -n "$hex" ] && all+=("$hex")
    done
    capture "$work/udp.pcap" -u "${all[@]/#/6d52}" || return 1
    capture "$work/tcp.pcap" -T $preamble "${all[@]}" || return 1
    for kind in udp tcp; do
        shark -r "$work/$kind.pcap" -V > "$work/$kind.txt"
        grep -q 'MX' "$work/$kind.txt" || { echo "no MX over $kind"; return 1; }
        ! grep -E 'Lua Error|Dissector bug|Exception occurred' "$work/$kind.txt" || return 1
    done
}
check 'nonsense' survives

# A capture of the file server, in a network of its own.
at_work() {
    local port=$1
    head -c 3000000 /dev/urandom > "$work/file"
    unshare -n bash -c '
        ip link set lo up
        tshark -q -i lo -w "$1/work.pcap" 2> "$1/tshark" &
        shark=$!
        for _ in $(seq 200); do grep -q "Capturing on" "$1/tshark" && break; sleep 0.05; done
        sleep 0.5
        export MX_PORT=$2
        "$3/bmi_fileserver" mx://localhost:3 "$1/store" > "$1/server" 2>&1 &
        server=$!
        for _ in $(seq 100); do
            timeout 20 "$3/bmi_cp" "$1/file" mx://localhost:3/copy > "$1/cp" 2>&1 && break
            sleep 0.1
        done
        kill $server; wait $server
        sleep 0.5
        kill -INT $shark; wait $shark' - "$work" "$port" "$build/bin"
    cmp "$work/file" "$work/store/copy" || return 1
    for filter in 'mx.kind == 1' 'mx.kind == 2 && mx.answer_to' 'mx.kind == 1 && mx.given_id' 'mx.kind == 2 && mx.given_id' 'mx.type == 0xd' 'mx.type == 0xe'; do
        [ -n "$(shark -r "$work/work.pcap" -Y "$filter")" ] || { echo "none of $filter"; return 1; }
    done
    wrong=$(shark -r "$work/work.pcap" -Y 'mx.bad_kind || mx.bad_body || mx.bad_hello || mx.local_type || mx_dgram.bad_kind ||
        mx_dgram.bad_length || mx_dgram.bad_sum || _ws.lua.error || _ws.malformed')
    [ -z "$wrong" ] || { echo "$wrong"; return 1; }
}
if [ "$(id -u)" = 0 ]; then
    for port in ${2:-tcp dgram}; do
        mkdir -p "$work/store"
        rm -f "$work/store/copy"
        check "the file server over $port" at_work "$port"
    done
else
    echo "skip $label: the file server at work: only root can make a network"
fi

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
