/*
 * A C bmi_mx beside this project's method: its handshake and messages, written from docs/hosts.md over
 * libmyriexpress.
 *
 *     side "ours"                                side "theirs"
 *       BMI server ◄─ CONN_REQ, CONN_ACK ─► c_method: one peer, whichever side called
 *                  ◄── UNEXPECTED, EXPECTED ──►
 *
 * Either side calls first, or both at once: each request is answered, under one peer's ids.
 *
 * Knows nothing of: the rest of a method.
 */
#include "../support/host.h"
#include "../support/op.h"
#include "support/party.h"

enum {
    BMI_KEY = 0x70766673,
    BMI_VERSION = 0x100,
    MY_ID = 7, /* the C method's number of its only peer */
    ROUNDS = 10,
    TURNS = 4,
    LARGEST = 1000 * 1000,
};

enum { CONN_ACK = 0xa, CONN_REQ = 0xc, UNEXPECTED = 0xd, EXPECTED = 0xe };

static uint64_t bits_of(uint64_t type, uint64_t id, uint64_t tag)
{
    return type << 60 | id << 32 | tag;
}

static const uint64_t type_mask = (uint64_t)0xf << 60;

static size_t size_of_answer(int turn)
{
    return turn % 2 == 0 ? 100 : LARGEST;
}

/* ---- theirs ---- */

struct c_method {
    mx_endpoint_t ep;
    mx_endpoint_addr_t peer;
    bool has_peer;
    uint64_t tx_id; /* the peer's number of this method; 0 until it is known */
};

static void method_open(struct c_method *method)
{
    memset(method, 0, sizeof *method);
    party_start();
    OK(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, BMI_KEY, NULL, 0, &method->ep));
}

/* ICON_REQ, ICON_ACK: a peer has one address, whichever side has connected. */
static void method_connect(struct c_method *method, uint32_t endpoint)
{
    mx_endpoint_addr_t address;

    OK(mx_connect(method->ep, local_nic(), endpoint, BMI_KEY, WAIT_MS, &address));
    if (method->has_peer)
        CHECK(same_address(address, method->peer));
    method->peer = address;
    method->has_peer = true;
}

static void method_says(struct c_method *method, uint64_t type, const void *body, size_t size)
{
    uint64_t bits = bits_of(type, MY_ID, BMI_VERSION);

    succeed(method->ep, send_to(method->ep, method->peer, body, size, bits), size);
}

static void method_requests(struct c_method *method, uint32_t endpoint)
{
    static const char name[] = "mx://theirs:0:1";

    method_connect(method, endpoint);
    method_says(method, CONN_REQ, name, sizeof name);
}

/* Receives a message of that type, if one has come. */
static bool method_takes(struct c_method *method, uint64_t type, mx_status_t *status, void *body)
{
    uint32_t there = 0;

    OK(mx_iprobe(method->ep, type << 60, type_mask, status, &there));
    if (there == 0)
        return false;
    if (method->has_peer)
        CHECK(same_address(status->source, method->peer));
    *status = finish(method->ep, receive(method->ep, body, LARGEST, status->match_info, EXACTLY));
    return true;
}

/* Handles the messages of the handshake. */
static void method_handshake(struct c_method *method)
{
    static char body[LARGEST];
    mx_status_t status;

    if (method_takes(method, CONN_REQ, &status, body)) {
        uint64_t nic;
        uint32_t endpoint, session;

        CHECK_THAT(status.match_info & UINT32_MAX, ==, BMI_VERSION);
        CHECK(memchr(body, '\0', status.xfer_length) != NULL);
        method->tx_id = status.match_info >> 32 & 0xfffff;
        OK(mx_decompose_endpoint_addr2(status.source, &nic, &endpoint, &session));
        method_connect(method, endpoint);
        method_says(method, CONN_ACK, NULL, 0);
    }
    if (method_takes(method, CONN_ACK, &status, body))
        method->tx_id = status.match_info >> 32 & 0xfffff;
}

static void method_is_ready(struct c_method *method)
{
    for (deadline_t deadline = deadline_in(WAIT_MS); method->tx_id == 0;) {
        CHECK(!deadline_over(deadline));
        method_handshake(method);
        OK(mx_progress(method->ep));
    }
}

/* Sends requests and receives their answers, with the peer's current ids. */
static void method_asks(struct c_method *method)
{
    static char answer[LARGEST];

    for (int turn = 0; turn < TURNS; turn++) {
        size_t size = size_of_answer(turn);
        uint64_t tag = (uint64_t)(100 + turn);
        mx_request_t receiving =
            receive(method->ep, answer, size, bits_of(EXPECTED, MY_ID, tag), EXACTLY);
        mx_status_t status;

        method_handshake(method);
        succeed(method->ep,
                send_to(method->ep, method->peer, &turn, sizeof turn,
                        bits_of(UNEXPECTED, method->tx_id, tag)),
                sizeof turn);
        for (deadline_t deadline = deadline_in(WAIT_MS); !is_done(method->ep, &receiving, &status);) {
            CHECK(!deadline_over(deadline));
            method_handshake(method);
        }
        STATUS_IS(status, MX_STATUS_SUCCESS);
        CHECK_THAT(status.xfer_length, ==, size);
        check_filled(answer, size, tag);
    }
}

/* Answers that many requests of the peer. */
static void method_answers(struct c_method *method)
{
    static char body[LARGEST];

    for (int turn = 0; turn < TURNS;) {
        mx_status_t status;
        uint64_t tag;

        method_handshake(method);
        if (!method_takes(method, UNEXPECTED, &status, body))
            continue;
        CHECK_THAT(status.match_info >> 32 & 0xfffff, ==, MY_ID);
        CHECK_THAT(status.xfer_length, ==, sizeof turn);
        tag = status.match_info & UINT32_MAX;
        fill(body, size_of_answer(turn), tag);
        /* CONN_REQ may have come with the request. */
        method_is_ready(method);
        succeed(method->ep,
                send_to(method->ep, method->peer, body, size_of_answer(turn),
                        bits_of(EXPECTED, method->tx_id, tag)),
                size_of_answer(turn));
        turn++;
    }
}

/* ---- ours ---- */

static void ours_answers(void)
{
    static char body[LARGEST];

    for (int turn = 0; turn < TURNS; turn++) {
        struct arrival arrival = host_next();
        struct op send = {0};

        CHECK_THAT(arrival.size, ==, sizeof turn);
        fill(body, size_of_answer(turn), (uint64_t)arrival.tag);
        CHECK_THAT(op_send(&send, arrival.from, body, (bmi_size_t)size_of_answer(turn), arrival.tag), >=, 0);
        op_sent(&send);
        arrival_free(&arrival);
    }
}

static void ours_asks(struct bmi_method_addr *peer)
{
    static char answer[LARGEST];

    for (int turn = 0; turn < TURNS; turn++) {
        bmi_msg_tag_t tag = 200 + turn;
        size_t size = size_of_answer(turn);
        struct op receiving = {0}, sending = {0};

        CHECK_THAT(op_recv(&receiving, peer, answer, (bmi_size_t)size, tag), >=, 0);
        CHECK_THAT(op_send_unexpected(&sending, peer, &turn, sizeof turn, tag), >=, 0);
        op_sent(&sending);
        op_received(&receiving, (bmi_size_t)size);
        check_filled(answer, size, (uint64_t)tag);
    }
}

/* ---- both ---- */

enum { THEY_CALL_FIRST, WE_CALL_FIRST };

/* One call after the other: the second one finds the peer of the first. */
static void ours(struct side *side)
{
    int endpoint = host_start_server();
    uint32_t theirs;

    tell(side, "ours", endpoint);
    theirs = (uint32_t)hear(side, "theirs");
    if (side->variant == THEY_CALL_FIRST)
        ours_answers();
    ours_asks(host_lookup_endpoint((int)theirs));
    ours_answers();
    ours_asks(host_lookup_endpoint((int)theirs));
    tell(side, "bye", 0);
    hear(side, "bye");
    host_stop();
}

static void theirs(struct side *side)
{
    struct c_method method;
    uint32_t endpoint;

    method_open(&method);
    endpoint = (uint32_t)hear(side, "ours");
    tell(side, "theirs", id_of(method.ep));
    if (side->variant == THEY_CALL_FIRST) {
        method_requests(&method, endpoint);
        method_is_ready(&method);
        method_asks(&method);
    }
    method_answers(&method);
    if (side->variant == WE_CALL_FIRST) {
        method.tx_id = 0;
        method_requests(&method, endpoint);
        method_is_ready(&method);
    }
    method_asks(&method);
    method_answers(&method);
    hear(side, "bye");
    tell(side, "bye", 0);
    party_close(method.ep);
}

/* Both call at the same instant, with new lives each time. */
static void ours_at_once(struct side *side)
{
    for (int round = 0; round < ROUNDS; round++) {
        int endpoint = host_start_server();
        uint32_t theirs;

        tell(side, "ours", endpoint);
        theirs = (uint32_t)hear(side, "theirs");
        ours_asks(host_lookup_endpoint((int)theirs));
        ours_answers();
        CHECK_THAT(host_registered(), <=, 1);
        tell(side, "bye", round);
        hear(side, "bye");
        host_stop();
    }
}

static void theirs_at_once(struct side *side)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct c_method method;
        uint32_t endpoint;

        method_open(&method);
        endpoint = (uint32_t)hear(side, "ours");
        tell(side, "theirs", id_of(method.ep));
        method_requests(&method, endpoint);
        method_answers(&method);
        method_is_ready(&method);
        method_asks(&method);
        hear(side, "bye");
        tell(side, "bye", round);
        party_close(method.ep);
    }
}

PARTY_TESTS(
    PAIR_OF(a_c_method_that_has_called_is_the_peer_that_is_called, THEY_CALL_FIRST, ours, THEY_CALL_FIRST, theirs),
    PAIR_OF(a_c_method_that_is_called_may_call_too, WE_CALL_FIRST, ours, WE_CALL_FIRST, theirs),
    PAIR(a_c_method_and_ours_may_call_each_other_at_once, ours_at_once, theirs_at_once))
