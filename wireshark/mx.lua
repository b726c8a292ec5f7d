-- Wireshark's view of MX over TCP and UDP: docs/wire-format.md, docs/dgram.md.
--
--   mx        packets: header, match bits, credit fields, bodies; questions and answers tied together
--   mx.tcp    the preamble of a connection, then packets
--   mx.dgram  datagrams: cookies, segments, acknowledgements; what begins a packet is shown as one
--
-- Found by their first bytes, at any port. Installed where Wireshark looks for plugins, or: tshark -X lua_script:mx.lua

local mx = Proto("mx", "MX packet")
local mx_tcp = Proto("mx_tcp", "MX over TCP")
local mx_dgram = Proto("mx_dgram", "MX over datagrams")

local HEADER = 32
local PREAMBLE = 8
local DATAGRAM = 64
local BODY_MAX = 2 ^ 30

-- A field of a protocol, by its name there.
local function field(fields, kind, name, text, ...)
    fields[name:match("[^.]+$")] = ProtoField[kind](name, text, ...)
end

local KINDS = {
    [1] = "Connect", [2] = "Reply", [3] = "Eager", [4] = "Offer", [5] = "Pull", [6] = "Data", [7] = "Notify",
    [8] = "Withdraw", [9] = "Credit", [10] = "Disconnect", [11] = "Ping", [12] = "Pong", [13] = "Revoke",
    [14] = "Return", [15] = "Claim", [17] = "Challenge", [18] = "Prove", [19] = "Attach", [20] = "Attached",
    [21] = "Lost", [22] = "Upgrade", [23] = "Fence", [24] = "Get", [25] = "Put",
}
local CONNECT, REPLY, EAGER, OFFER, PULL, DATA, NOTIFY, WITHDRAW = 1, 2, 3, 4, 5, 6, 7, 8
local PING, PONG, REVOKE, RETURN, CLAIM, CHALLENGE, PROVE = 11, 12, 13, 14, 15, 17, 18
local ATTACH, ATTACHED, LOST, UPGRADE, GET, PUT = 19, 20, 21, 22, 24, 25
-- Introductions have no credit fields.
local NO_CREDIT = {
    [CONNECT] = true, [REPLY] = true, [CLAIM] = true, [CHALLENGE] = true, [PROVE] = true, [ATTACH] = true,
    [ATTACHED] = true,
}
local REPLIES = {
    [0] = "welcome", [1] = "wrong key", [2] = "other version", [3] = "no room", [5] = "not the same secret",
    [6] = "refused",
}
local NOTIFIES = {
    [0] = "all", [1] = "truncated", [2] = "not wanted", [3] = "no such region", [4] = "out of range", [5] = "not allowed",
    [6] = "no room",
}
local TYPES = {
    [0x9] = "ICON_ACK", [0xa] = "CONN_ACK", [0xb] = "ICON_REQ", [0xc] = "CONN_REQ", [0xd] = "UNEXPECTED",
    [0xe] = "EXPECTED",
}
local CONN_ACK, CONN_REQ, UNEXPECTED = 0xa, 0xc, 0xd

local f = {}
field(f, "uint8", "mx.kind", "Kind", base.DEC, KINDS)
field(f, "uint8", "mx.epoch", "Epoch")
field(f, "uint32", "mx.body_length", "Body length")
field(f, "uint64", "mx.bits", "Match bits", base.HEX)
-- Of the upper half.
field(f, "uint32", "mx.type", "BMI type", base.HEX, TYPES, 0xf0000000)
field(f, "uint32", "mx.class", "Class", base.DEC, nil, 0x0ff00000)
field(f, "uint32", "mx.peer", "Peer id", base.DEC, nil, 0x000fffff)
field(f, "uint32", "mx.tag", "Tag")
field(f, "uint64", "mx.connect_id", "Connect id", base.HEX)
field(f, "uint64", "mx.send_id", "Send id", base.HEX)
field(f, "uint64", "mx.receive_id", "Receive id", base.HEX)
field(f, "uint64", "mx.question", "Question")
field(f, "uint32", "mx.length", "Message length")
field(f, "uint32", "mx.offset", "Offset")
field(f, "uint64", "mx.region", "Key of the region", base.HEX)
field(f, "uint64", "mx.region_offset", "Offset in the region")
field(f, "uint32", "mx.wanted_length", "Bytes wanted")
field(f, "uint32", "mx.attempt", "Attempt")
field(f, "uint64", "mx.attached", "Session of the data link", base.HEX)
field(f, "uint32", "mx.data_link", "Number of the data link")
field(f, "uint32", "mx.fabric", "Fabric", base.DEC, { [4] = "rdm", [8] = "dgram" })
field(f, "uint32", "mx.refusal", "Reason for no address", base.DEC, { [0] = "none", [1] = "no room", [2] = "it failed" })
field(f, "bytes", "mx.address", "Address on the fabric")
field(f, "uint32", "mx.transferred", "Bytes received")
field(f, "uint32", "mx.asked_back", "Credits asked back")
field(f, "uint32", "mx.given_back", "Credits given back")
field(f, "uint32", "mx.reply", "Reply", base.DEC, REPLIES)
field(f, "uint32", "mx.notify", "Result", base.DEC, NOTIFIES)
field(f, "uint32", "mx.slot", "Slot", base.DEC, { [0] = "none", [1] = "matched lane", [2] = "unexpected lane" })
field(f, "uint32", "mx.answer", "A Notify is wanted")
field(f, "uint32", "mx.credit", "Credits, running total")
field(f, "uint24", "mx.wanted", "Credits wanted")
field(f, "uint8", "mx.slots", "Messages received in slots", base.HEX)
field(f, "string", "mx.name", "Peer name")
field(f, "uint64", "mx.remote_address", "Remote address", base.HEX)
field(f, "uint64", "mx.remote_key", "Remote key", base.HEX)
field(f, "bytes", "mx.data", "Data")
field(f, "bytes", "mx.nonce", "Nonce")
field(f, "bytes", "mx.proof", "Proof")
field(f, "uint64", "mx.other_nic", "Interface on the other session", base.HEX)
field(f, "uint64", "mx.claimed", "Session of the receiver's that is claimed", base.HEX)
field(f, "uint16", "mx.version", "Version")
field(f, "uint16", "mx.oldest", "Oldest version understood")
field(f, "uint32", "mx.features", "Features", base.HEX)
field(f, "uint32", "mx.method_version", "Version of the method", base.HEX)
field(f, "uint32", "mx.given_id", "Id for the receiver")
field(f, "uint16", "mx.association", "Association")
field(f, "uint32", "mx.key", "Connection key", base.HEX)
field(f, "uint32", "mx.endpoint", "Endpoint")
field(f, "uint64", "mx.nic", "Interface", base.HEX)
field(f, "uint64", "mx.session", "Session", base.HEX)
field(f, "uint64", "mx.to_nic", "Called interface", base.HEX)
field(f, "uint32", "mx.to_endpoint", "Called endpoint")
field(f, "framenum", "mx.answered_in", "Answered in", base.NONE, frametype.RESPONSE)
field(f, "framenum", "mx.answer_to", "Answer to", base.NONE, frametype.REQUEST)
mx.fields = f

local bad = {
    kind = ProtoExpert.new("mx.bad_kind", "Unknown kind", expert.group.PROTOCOL, expert.severity.ERROR),
    body = ProtoExpert.new("mx.bad_body", "Body of a wrong length", expert.group.PROTOCOL, expert.severity.ERROR),
    hello = ProtoExpert.new("mx.bad_hello", "Malformed hello", expert.group.PROTOCOL, expert.severity.ERROR),
    refused = ProtoExpert.new("mx.refused", "Refused", expert.group.RESPONSE_CODE, expert.severity.WARN),
    local_type = ProtoExpert.new("mx.local_type", "A type that never travels", expert.group.PROTOCOL,
        expert.severity.ERROR),
    withdrawn = ProtoExpert.new("mx.withdrawn", "Message called off", expert.group.SEQUENCE, expert.severity.NOTE),
}
mx.experts = bad

-- Questions: what an answer names, in the direction of the question -> its frame; and the other way round.
local asked, answers, questions = {}, {}, {}
-- The ways of sessions, by the number of each at the called side; and those that data links stand for, by their own.
local sessions, stands_for = {}, {}
function mx.init()
    asked, answers, questions = {}, {}, {}
    sessions, stands_for = {}, {}
end

-- Where a packet goes: the addresses say it, for a stream as for datagrams. On a data link: where its session's go.
local function way(pinfo, back)
    local from = tostring(pinfo.src) .. ":" .. pinfo.src_port
    local to = tostring(pinfo.dst) .. ":" .. pinfo.dst_port
    local key = back and to .. ">" .. from or from .. ">" .. to
    return stands_for[key] or key
end

-- A data link of the session with that number at the called side.
local function attaches(pinfo, number)
    local session = sessions[number]
    if session then
        stands_for[way(pinfo, false)], stands_for[way(pinfo, true)] = session.there, session.back
    end
end

local function asks(pinfo, tree, what)
    local key = way(pinfo, false) .. what
    if not pinfo.visited then
        asked[key] = pinfo.number
    end
    if answers[pinfo.number .. key] then
        tree:add(f.answered_in, answers[pinfo.number .. key]):set_generated()
    end
end

local function responds(pinfo, tree, what)
    local key = way(pinfo, true) .. what
    local own = pinfo.number .. key
    if not pinfo.visited and asked[key] then
        questions[own] = asked[key]
        local first = asked[key] .. key
        answers[first] = answers[first] or pinfo.number
    end
    if questions[own] then
        tree:add(f.answer_to, questions[own]):set_generated()
    end
end

-- Match bits, as BMI has them; a program of MX's own has others.
local function match_bits(word, body, pinfo, tree)
    local item = tree:add_le(f.bits, word)
    local kind = word(7, 1):uint()
    kind = (kind - kind % 16) / 16
    if not TYPES[kind] then
        return "bits " .. tostring(word:le_uint64():tohex())
    end
    item:add_le(f.type, word(4, 4))
    if kind == UNEXPECTED then
        item:add_le(f.class, word(4, 4))
    end
    item:add_le(f.peer, word(4, 4))
    item:add_le(f.tag, word(0, 4))
    if kind == 0x9 or kind == 0xb then
        item:add_proto_expert_info(bad.local_type)
    end
    if kind == CONN_REQ and body and body:len() > 0 then
        tree:add(f.name, body)
    end
    if kind == CONN_REQ or kind == CONN_ACK then
        return TYPES[kind]
    end
    return TYPES[kind] .. " tag " .. word(0, 4):le_uint()
end

local function claim(body, tree)
    tree:add_le(f.claimed, body(0, 8))
    tree:add_le(f.to_nic, body(8, 8))
    tree:add_le(f.other_nic, body(16, 8))
    tree:add(f.proof, body(24, 16))
end

local function hello(body, tree)
    if body:len() < HEADER or body(0, 4):string() ~= "MXs1" then
        tree:add_proto_expert_info(bad.hello)
        return
    end
    local sub = tree:add(mx, body, "Hello")
    sub:add_le(f.version, body(4, 2))
    sub:add_le(f.association, body(6, 2))
    sub:add_le(f.key, body(8, 4))
    sub:add_le(f.endpoint, body(12, 4))
    sub:add_le(f.nic, body(16, 6))
    sub:add_le(f.oldest, body(22, 2))
    sub:add_le(f.session, body(24, 8))
    if body:len() < 64 then
        return
    end
    sub:add_le(f.to_nic, body(32, 6))
    sub:add_le(f.to_endpoint, body(40, 4))
    sub:add_le(f.features, body(44, 4))
    sub:add(f.nonce, body(48, 16))
    local len = body(38, 1):uint()
    if body:len() < 64 + len then
        sub:add_proto_expert_info(bad.hello)
        return
    end
    if len >= 8 then
        sub:add_le(f.method_version, body(64, 4))
        sub:add_le(f.given_id, body(68, 4))
        sub:add(f.name, body(72, len - 8))
    end
    if body:len() >= 64 + len + 40 then
        claim(body(64 + len, 40), sub)
    end
end

-- Lengths of bodies that are no message's: the least, and the most.
local BODIES = {
    [CONNECT] = { 32, BODY_MAX }, [REPLY] = { 32, BODY_MAX }, [OFFER] = { 8, 24 }, [PULL] = { 12, 16 },
    [NOTIFY] = { 0, 0 }, [WITHDRAW] = { 0, 0 }, [9] = { 0, 0 }, [10] = { 0, 0 }, [PING] = { 0, 0 }, [PONG] = { 0, 0 },
    [REVOKE] = { 0, 0 }, [RETURN] = { 0, 0 }, [CLAIM] = { 40, BODY_MAX }, [CHALLENGE] = { 72, 72 },
    [PROVE] = { 32, 32 }, [ATTACH] = { 16, 16 }, [ATTACHED] = { 16, 16 }, [LOST] = { 0, 0 },
    [UPGRADE] = { 0, 512 }, [23] = { 0, 0 }, [GET] = { 28, 28 }, [PUT] = { 16, 16 },
}

local show = {}

show[CONNECT] = function(t, pinfo, tree)
    tree:add_le(f.connect_id, t(8, 8))
    asks(pinfo, tree, "connect" .. t(8, 8):le_uint64():tohex())
end

show[REPLY] = function(t, pinfo, tree, body)
    if body and body:len() >= 64 then
        local number = body(48, 8):le_uint64():tohex()
        sessions[number] = { there = way(pinfo, true), back = way(pinfo, false) }
    end
    tree:add_le(f.connect_id, t(8, 8))
    local item, status = tree:add_le(f.reply, t(20, 4)), t(20, 4):le_uint()
    if status ~= 0 then
        item:add_proto_expert_info(bad.refused)
    end
    responds(pinfo, tree, "connect" .. t(8, 8):le_uint64():tohex())
    return REPLIES[status]
end

show[EAGER] = function(t, pinfo, tree, body)
    local text = match_bits(t(8, 8), body, pinfo, tree)
    tree:add_le(f.length, t(16, 4))
    tree:add_le(f.slot, t(20, 4))
    return text .. ", " .. t(16, 4):le_uint() .. " bytes"
end

show[OFFER] = function(t, pinfo, tree, body)
    local text = match_bits(t(8, 8), nil, pinfo, tree)
    tree:add_le(f.length, t(16, 4))
    tree:add_le(f.slot, t(20, 4))
    if body and body:len() >= 8 then
        tree:add_le(f.send_id, body(0, 8))
        asks(pinfo, tree, "send" .. body(0, 8):le_uint64():tohex())
    end
    if body and body:len() == 24 then
        tree:add_le(f.remote_address, body(8, 8))
        tree:add_le(f.remote_key, body(16, 8))
    end
    return text .. ", " .. t(16, 4):le_uint() .. " bytes"
end

show[PULL] = function(t, pinfo, tree, body)
    tree:add_le(f.send_id, t(8, 8))
    tree:add_le(f.offset, t(16, 4))
    tree:add_le(f.attempt, t(20, 4))
    responds(pinfo, tree, "send" .. t(8, 8):le_uint64():tohex())
    if body and body:len() >= 12 then
        tree:add_le(f.receive_id, body(0, 8))
        tree:add_le(f.wanted_length, body(8, 4))
        if body:len() == 16 then
            tree:add_le(f.data_link, body(12, 4))
        end
        asks(pinfo, tree, "receive" .. body(0, 8):le_uint64():tohex())
    end
end

show[DATA] = function(t, pinfo, tree)
    tree:add_le(f.receive_id, t(8, 8))
    tree:add_le(f.offset, t(16, 4))
    tree:add_le(f.attempt, t(20, 4))
    responds(pinfo, tree, "receive" .. t(8, 8):le_uint64():tohex())
    return "at " .. t(16, 4):le_uint()
end

show[NOTIFY] = function(t, pinfo, tree)
    tree:add_le(f.send_id, t(8, 8))
    tree:add_le(f.transferred, t(16, 4))
    tree:add_le(f.notify, t(20, 4))
    local id, status = t(8, 8):le_uint64():tohex(), t(20, 4):le_uint()
    responds(pinfo, tree, "send" .. id)
    if status > 2 then
        responds(pinfo, tree, "receive" .. id)
    end
    return NOTIFIES[status]
end

show[GET] = function(t, pinfo, tree, body)
    tree:add_le(f.region, t(8, 8))
    tree:add_le(f.offset, t(16, 4))
    tree:add_le(f.attempt, t(20, 4))
    if body and body:len() == 28 then
        tree:add_le(f.receive_id, body(0, 8))
        tree:add_le(f.wanted_length, body(8, 4))
        tree:add_le(f.data_link, body(12, 4))
        tree:add_le(f.region_offset, body(16, 8))
        tree:add_le(f.length, body(24, 4))
        asks(pinfo, tree, "receive" .. body(0, 8):le_uint64():tohex())
    end
end

show[PUT] = function(t, pinfo, tree, body)
    tree:add_le(f.region, t(8, 8))
    tree:add_le(f.length, t(16, 4))
    if body and body:len() == 16 then
        tree:add_le(f.send_id, body(0, 8))
        tree:add_le(f.region_offset, body(8, 8))
        asks(pinfo, tree, "send" .. body(0, 8):le_uint64():tohex())
    end
    return t(16, 4):le_uint() .. " bytes"
end

show[WITHDRAW] = function(t, pinfo, tree)
    tree:add_le(f.send_id, t(8, 8)):add_proto_expert_info(bad.withdrawn)
    tree:add_le(f.answer, t(20, 4))
    asks(pinfo, tree, "send" .. t(8, 8):le_uint64():tohex())
end

show[PING] = function(t, pinfo, tree)
    tree:add_le(f.question, t(8, 8))
    asks(pinfo, tree, "ping" .. t(8, 8):le_uint64():tohex())
end

show[PONG] = function(t, pinfo, tree)
    tree:add_le(f.question, t(8, 8))
    responds(pinfo, tree, "ping" .. t(8, 8):le_uint64():tohex())
end

show[REVOKE] = function(t, pinfo, tree)
    tree:add_le(f.asked_back, t(16, 4))
    asks(pinfo, tree, "revoke")
    return t(16, 4):le_uint() .. " credits"
end

show[RETURN] = function(t, pinfo, tree)
    tree:add_le(f.given_back, t(16, 4))
    responds(pinfo, tree, "revoke")
    return t(16, 4):le_uint() .. " credits"
end

show[CLAIM] = function(_, _, tree, body)
    if body and body:len() >= 40 then
        claim(body, tree)
    end
end

show[CHALLENGE] = function(_, pinfo, tree, body)
    if body and body:len() == 72 then
        tree:add_le(f.nic, body(0, 8))
        tree:add_le(f.session, body(8, 8))
        tree:add_le(f.endpoint, body(16, 4))
        tree:add(f.nonce, body(24, 16))
        tree:add(f.proof, body(40, 32))
    end
    asks(pinfo, tree, "challenge")
end

show[ATTACH] = function(t, pinfo, tree, body)
    tree:add_le(f.attached, t(8, 8))
    tree:add_le(f.data_link, t(16, 4))
    tree:add(f.proof, body)
    attaches(pinfo, t(8, 8):le_uint64():tohex())
    asks(pinfo, tree, "attach")
    return "number " .. t(16, 4):le_uint()
end

show[ATTACHED] = function(t, pinfo, tree, body)
    tree:add_le(f.data_link, t(16, 4))
    tree:add(f.proof, body)
    responds(pinfo, tree, "attach")
    return "number " .. t(16, 4):le_uint()
end

show[LOST] = function(t, _, tree)
    tree:add_le(f.data_link, t(16, 4))
    return "number " .. t(16, 4):le_uint()
end

show[UPGRADE] = function(t, _, tree, body)
    tree:add_le(f.fabric, t(16, 4))
    tree:add_le(f.refusal, t(20, 4))
    if body then
        tree:add(f.address, body)
    end
end

show[PROVE] = function(_, pinfo, tree, body)
    if body and body:len() == 32 then
        tree:add(f.proof, body)
    end
    responds(pinfo, tree, "challenge")
end

-- One packet; of its body, as much as there is.
function mx.dissector(tvb, pinfo, tree)
    if tvb:len() < HEADER then
        return 0
    end
    local kind, body_len = tvb(0, 1):uint(), tvb(4, 4):le_uint()
    local there = math.min(body_len, tvb:len() - HEADER)
    local body = there > 0 and tvb(HEADER, there) or nil
    local name = KINDS[kind] or ("kind " .. kind)
    local sub = tree:add(mx, tvb(0, HEADER + there), "MX " .. name)
    local item = sub:add(f.kind, tvb(0, 1))
    sub:add(f.epoch, tvb(1, 1))
    local length = sub:add_le(f.body_length, tvb(4, 4))
    if not KINDS[kind] then
        item:add_proto_expert_info(bad.kind)
    end
    local limits = BODIES[kind]
    if body_len > BODY_MAX or (limits and (body_len < limits[1] or body_len > limits[2])) then
        length:add_proto_expert_info(bad.body)
    end
    local about = show[kind] and show[kind](tvb, pinfo, sub, body)
    if not NO_CREDIT[kind] then
        local credits = sub:add(mx, tvb(24, 8), "Credit fields")
        credits:add_le(f.credit, tvb(24, 4))
        credits:add_le(f.wanted, tvb(28, 3))
        credits:add(f.slots, tvb(31, 1))
    end
    if body and (kind == CONNECT or kind == REPLY) then
        hello(body, sub)
    elseif body and (kind == EAGER or kind == DATA) then
        sub:add(f.data, body)
    end
    about = about and name .. " (" .. about .. ")" or name
    sub:set_text("MX " .. about)
    pinfo.cols.protocol = "MX"
    pinfo.cols.info:append(about .. " ")
    return HEADER + there
end

-- The framing.
local x = {}
field(x, "string", "mx_tcp.preamble", "Preamble")
field(x, "uint16", "mx_tcp.version", "Version of the framing")
mx_tcp.fields = x

local function is_preamble(tvb)
    return tvb:len() >= PREAMBLE and tvb(0, 1):uint() == 0x93 and tvb(1, 5):string() == "MXTCP"
end

local function unit_length(tvb, _, offset)
    if is_preamble(tvb(offset):tvb()) then
        return PREAMBLE
    end
    -- Not enough for a length yet.
    if tvb:len() - offset < PREAMBLE then
        return HEADER
    end
    return HEADER + math.min(tvb(offset + 4, 4):le_uint(), BODY_MAX)
end

local function unit(tvb, pinfo, tree)
    if is_preamble(tvb) then
        local sub = tree:add(mx_tcp, tvb, "MX over TCP, preamble")
        sub:add(x.preamble, tvb(1, 5))
        sub:add_le(x.version, tvb(6, 2))
        pinfo.cols.info:append("preamble ")
    else
        return mx.dissector(tvb, pinfo, tree)
    end
    return tvb:len()
end

function mx_tcp.dissector(tvb, pinfo, tree)
    pinfo.cols.protocol = "MX"
    pinfo.cols.info:clear()
    dissect_tcp_pdus(tvb, tree, PREAMBLE, unit_length, unit)
    return tvb:len()
end

mx_tcp:register_heuristic("tcp", function(tvb, pinfo, tree)
    if not is_preamble(tvb) then
        return false
    end
    pinfo.conversation = mx_tcp
    mx_tcp.dissector(tvb, pinfo, tree)
    return true
end)
DissectorTable.get("tcp.port"):add_for_decode_as(mx_tcp)

-- Datagrams.
local DATAGRAMS = {
    [1] = "Hello", [2] = "Welcome", [3] = "Data", [4] = "Ack", [5] = "Ping", [6] = "Reset", [7] = "Probe", [8] = "Probed",
}
local D_DATA, D_ACK, D_PING = 3, 4, 5
local SUMMED = 4
local d = {}
field(d, "uint8", "mx_dgram.version", "Version")
field(d, "uint8", "mx_dgram.kind", "Kind", base.DEC, DATAGRAMS)
field(d, "uint32", "mx_dgram.header_sum", "CRC-32C of the header", base.HEX)
field(d, "uint64", "mx_dgram.to", "To (cookie)", base.HEX)
field(d, "uint64", "mx_dgram.from", "From (cookie)", base.HEX)
field(d, "uint32", "mx_dgram.seq", "Sequence number")
field(d, "uint32", "mx_dgram.ack", "Next one wanted")
field(d, "uint64", "mx_dgram.sack", "Here beyond that", base.HEX)
field(d, "uint32", "mx_dgram.window", "Receive window")
field(d, "uint16", "mx_dgram.flags", "Flags", base.HEX)
field(d, "bool", "mx_dgram.fin", "FIN: nothing follows", 16, nil, 1)
field(d, "bool", "mx_dgram.ask", "ASK: acknowledge at once", 16, nil, 2)
field(d, "bool", "mx_dgram.summed", "SUMMED: the payload's checksum is there", 16, nil, 4)
field(d, "bool", "mx_dgram.opening", "OPENING: the caller has not been acknowledged yet", 16, nil, 8)
field(d, "uint16", "mx_dgram.payload_length", "Payload length")
field(d, "uint32", "mx_dgram.fragment", "Fragment")
field(d, "uint32", "mx_dgram.offset", "Offset in the fragment")
field(d, "uint32", "mx_dgram.whole", "Length of the fragment")
field(d, "uint32", "mx_dgram.payload_sum", "CRC-32C of the payload", base.HEX)
field(d, "bytes", "mx_dgram.payload", "Payload")
field(d, "string", "mx_dgram.data_channel", "Name of the data channel")
field(d, "framenum", "mx_dgram.sent_first_in", "First sent in")
mx_dgram.fields = d

local wrong = {
    kind = ProtoExpert.new("mx_dgram.bad_kind", "Unknown kind", expert.group.PROTOCOL, expert.severity.ERROR),
    length = ProtoExpert.new("mx_dgram.bad_length", "Not as long as it says", expert.group.PROTOCOL,
        expert.severity.ERROR),
    sum = ProtoExpert.new("mx_dgram.bad_sum", "Damaged", expert.group.CHECKSUM, expert.severity.ERROR),
    again = ProtoExpert.new("mx_dgram.retransmission", "Retransmission", expert.group.SEQUENCE,
        expert.severity.NOTE),
    reset = ProtoExpert.new("mx_dgram.reset", "No such session", expert.group.SEQUENCE, expert.severity.WARN),
}
mx_dgram.experts = wrong

-- The frame in which a segment was first sent, by the cookies of its session and its number.
local segments, repeated = {}, {}
function mx_dgram.init()
    segments, repeated = {}, {}
end

local crc_table = {}
for n = 0, 255 do
    local crc = n
    for _ = 1, 8 do
        local odd = crc % 2 == 1
        crc = bit32.rshift(crc, 1)
        if odd then
            crc = bit32.bxor(crc, 0x82f63b78)
        end
    end
    crc_table[n] = crc
end

-- CRC-32C of bytes; those from `hole` on, four of them, count as zeros.
local function crc32c(bytes, hole)
    local crc = 0xffffffff
    for n = 0, bytes:len() - 1 do
        local byte = bytes:get_index(n)
        if hole and n >= hole and n < hole + 4 then
            byte = 0
        end
        crc = bit32.bxor(bit32.rshift(crc, 8), crc_table[bit32.band(bit32.bxor(crc, byte), 0xff)])
    end
    return bit32.bnot(crc)
end

-- One datagram. The end of the capture may have cut it.
local function datagram(tvb, pinfo, tree)
    local kind, seq, length = tvb(3, 1):uint(), tvb(24, 4):le_uint(), tvb(46, 2):le_uint()
    local flags = tvb(44, 2):le_uint()
    local name = DATAGRAMS[kind] or ("kind " .. kind)
    local sub = tree:add(mx_dgram, tvb(), "MX datagram, " .. name)
    sub:add(d.version, tvb(2, 1))
    local item = sub:add(d.kind, tvb(3, 1))
    if not DATAGRAMS[kind] then
        item:add_proto_expert_info(wrong.kind)
    elseif name == "Reset" then
        item:add_proto_expert_info(wrong.reset)
    end
    item = sub:add_le(d.header_sum, tvb(4, 4))
    if crc32c(tvb(0, DATAGRAM):bytes(), 4) ~= tvb(4, 4):le_uint() then
        item:add_proto_expert_info(wrong.sum)
    end
    sub:add_le(d.to, tvb(8, 8))
    sub:add_le(d.from, tvb(16, 8))
    local number = sub:add_le(d.seq, tvb(24, 4))
    sub:add_le(d.ack, tvb(28, 4))
    sub:add_le(d.sack, tvb(32, 8))
    sub:add_le(d.window, tvb(40, 4))
    item = sub:add_le(d.flags, tvb(44, 2))
    for _, flag in ipairs({ "fin", "ask", "summed", "opening" }) do
        item:add_le(d[flag], tvb(44, 2))
    end
    item = sub:add_le(d.payload_length, tvb(46, 2))
    sub:add_le(d.fragment, tvb(48, 4))
    sub:add_le(d.offset, tvb(52, 4))
    sub:add_le(d.whole, tvb(56, 4))
    local sum = sub:add_le(d.payload_sum, tvb(60, 4))
    pinfo.cols.info:append(name .. " seq " .. seq .. " ack " .. tvb(28, 4):le_uint() .. " ")
    if tvb:reported_len() ~= DATAGRAM + length then
        item:add_proto_expert_info(wrong.length)
        return
    end
    if length == 0 or tvb:len() < DATAGRAM + length then
        return
    end
    local payload = tvb(DATAGRAM, length)
    if bit32.band(flags, SUMMED) ~= 0 and crc32c(payload:bytes()) ~= tvb(60, 4):le_uint() then
        sum:add_proto_expert_info(wrong.sum)
    end
    if kind == D_DATA then
        local key = tostring(tvb(8, 16):bytes()) .. seq
        if not pinfo.visited then
            if segments[key] then
                repeated[pinfo.number] = segments[key]
            else
                segments[key] = pinfo.number
            end
        end
        if repeated[pinfo.number] then
            number:add_proto_expert_info(wrong.again)
            sub:add(d.sent_first_in, repeated[pinfo.number]):set_generated()
        end
        if tvb(52, 4):le_uint() == 0 and length >= HEADER then
            mx.dissector(payload:tvb(), pinfo, tree)
            return
        end
    elseif name == "Welcome" then
        local named = math.min(payload(0, 1):uint(), length - 1)
        if named > 0 then
            sub:add(d.data_channel, payload(1, named), tostring(payload(1, named):bytes()))
        end
    end
    sub:add(d.payload, payload)
end

-- On this machine's own interface there are several in one: those that the kernel has not cut apart (GSO).
function mx_dgram.dissector(tvb, pinfo, tree)
    pinfo.cols.protocol = "MX"
    pinfo.cols.info:clear()
    local at = 0
    while tvb:len() - at >= DATAGRAM and tvb(at, 2):string() == "mR" do
        local rest, most = tvb:len() - at, DATAGRAM + tvb(at + 46, 2):le_uint()
        local follows = rest - most >= DATAGRAM and tvb(at + most, 2):string() == "mR"
        local len = follows and most or rest
        datagram(tvb(at, len):tvb(), pinfo, tree)
        at = at + len
    end
    return tvb:len()
end

mx_dgram:register_heuristic("udp", function(tvb, pinfo, tree)
    if tvb:len() < DATAGRAM or tvb(0, 2):string() ~= "mR" then
        return false
    end
    mx_dgram.dissector(tvb, pinfo, tree)
    return true
end)
