/*
 * Unusual arguments that are accepted, and lists that are rejected: nothing is posted. Every row of
 * myriexpress(3), UNUSUAL ARGUMENTS, is called here; every wrong argument of every function in
 * myriexpress/tests/arguments.rs.
 *
 * Failures to open, connect or resolve are in lifecycle.c, connect.c and names.c.
 */
#include "support/party.h"

static mx_endpoint_t ep, other;
static mx_endpoint_addr_t me, to_other;
static mx_status_t status, blank;
static uint32_t result;
static mx_request_t pending;
static char buffer[100];

static void set_up(void)
{
    ep = party_open();
    other = open_any();
    me = address_of(ep);
    to_other = connect_to(ep, id_of(other));
    memset(&blank, 0x5a, sizeof blank);
    status = blank;
    result = 77;
    pending = receive(ep, buffer, sizeof buffer, 0x9999, EXACTLY);
}

/* Checks that outputs, the endpoint and its receive are unchanged. */
static void take_down(void)
{
    mx_request_t peeked = NULL;

    CHECK(memcmp(&status, &blank, sizeof status) == 0);
    CHECK_THAT(result, ==, 77);
    OK(mx_ipeek(ep, &peeked, &result)); /* nothing was posted, nothing completed */
    CHECK_THAT(result, ==, 0);
    succeed(ep, send_to(ep, me, NULL, 0, 0x9999), 0);
    succeed(ep, pending, 0);
    OK(mx_test_any(ep, 0, ANYTHING, &status, &result));
    CHECK_THAT(result, ==, 0);
    OK(mx_iprobe(other, 0, ANYTHING, &status, &result));
    CHECK_THAT(result, ==, 0);
    OK(mx_close_endpoint(other));
    party_close(ep);
}

/* ---- outputs ---- */

/* Outputs that a caller need not ask for, and pointers that may be NULL. */
static void outputs_left_out(struct side *side)
{
    mx_param_t params[65];
    mx_segment_t segment = {"1234567", 8};
    mx_endpoint_t third;
    uint64_t nic = 77, wanted_nic;
    uint32_t id = 77, session = 77, wanted_session, count = 77;
    char nameless[] = "";
    char in[8] = "";

    set_up();
    OK(mx_decompose_endpoint_addr2(me, &wanted_nic, &id, &wanted_session));
    CHECK_THAT(id, ==, id_of(ep));
    OK(mx_decompose_endpoint_addr(me, NULL, NULL));
    OK(mx_decompose_endpoint_addr(me, &nic, NULL));
    id = 77;
    OK(mx_decompose_endpoint_addr(me, NULL, &id));
    CHECK(nic == wanted_nic && id == id_of(ep));
    OK(mx_decompose_endpoint_addr2(me, NULL, NULL, &session));
    CHECK_THAT(session, ==, wanted_session);
    nic = id = 77;
    OK(mx_decompose_endpoint_addr2(me, &nic, NULL, NULL));
    OK(mx_decompose_endpoint_addr2(me, NULL, &id, NULL));
    CHECK(nic == wanted_nic && id == id_of(ep));
    OK(mx_decompose_endpoint_addr2(me, NULL, NULL, NULL));
    REFUSED(mx_decompose_endpoint_addr(me, (void *)1, NULL), MX_FAILURE); /* misaligned */

    /* A send without an output for its request, and a probe without a status. */
    OK(mx_iprobe(ep, 0x4711, EXACTLY, NULL, &result));
    CHECK_THAT(result, ==, 0);
    OK(mx_probe(ep, 20, 0x4711, EXACTLY, NULL, &result));
    CHECK_THAT(result, ==, 0);
    OK(mx_isend(ep, &segment, 1, me, 0x4711, NULL, NULL));
    OK(mx_probe(ep, 10000, 0x4711, EXACTLY, NULL, &result));
    CHECK_THAT(result, ==, 1);
    OK(mx_iprobe(ep, 0x4711, EXACTLY, NULL, &result));
    CHECK_THAT(result, ==, 1);
    succeed(ep, receive(ep, in, 8, 0x4711, EXACTLY), 8);
    CHECK(memcmp(in, "1234567", 8) == 0);
    OK(mx_iprobe(ep, 0x4711, EXACTLY, NULL, &result));
    CHECK_THAT(result, ==, 0);
    memset(in, 0, sizeof in);
    segment.segment_ptr = in;
    OK(mx_irecv(ep, &segment, 1, 0x4712, EXACTLY, NULL, NULL));
    OK(mx_iconnect(ep, local_nic(), id_of(other), KEY, 0x4713, NULL, NULL));
    succeed(ep, send_to(ep, me, "7654321", 8, 0x4712), 8);
    UNTIL (in[6] == '1')
        OK(mx_progress(ep));
    result = 77;

    /* Without parameters the list may be NULL or anything; NULL, too long or unknown lists are rejected. */
    OK(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, NULL, 0, &third));
    OK(mx_close_endpoint(third));
    memset(params, 0x5a, sizeof params);
    OK(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, params, 0, &third));
    OK(mx_close_endpoint(third));
    third = other;
    REFUSED(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, NULL, 1, &third),
            MX_BAD_PARAM_LIST);
    REFUSED(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, params, 65, &third),
            MX_BAD_PARAM_LIST);
    REFUSED(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, params, 1, &third),
            MX_BAD_PARAM_NAME);
    CHECK(third == other);

    /* A NULL pointer or a length of 0 stands for no certain board. */
    OK(mx_get_info(ep, MX_NIC_COUNT, NULL, 8, &count, 4));
    CHECK(count != 77);
    OK(mx_get_info(ep, MX_NIC_COUNT, &count, 0, &count, 4));
    REFUSED(mx_get_info(ep, MX_NIC_COUNT, &count, 3, &count, 4), MX_BAD_INFO_LENGTH);
    REFUSED(mx_get_info(ep, 0, NULL, 0, &count, 4), MX_BAD_INFO_KEY);
    REFUSED(mx_get_info(ep, 17, NULL, 0, &count, 4), MX_BAD_INFO_KEY);
    nic = 77;
    REFUSED(mx_hostname_to_nic_id(nameless, &nic), MX_HOST_NOT_FOUND);
    CHECK_THAT(nic, ==, 77);

    /* No handler, no context, no time. */
    OK(mx_register_unexp_handler(ep, NULL, NULL));
    OK(mx_set_endpoint_addr_context(me, NULL));
    OK(mx_set_request_timeout(ep, NULL, 0));
    OK(mx_set_request_timeout(ep, pending, UINT32_MAX));
    OK(mx_set_request_timeout(ep, pending, MX_INFINITE));
    OK(mx_wakeup(ep)); /* no thread waits */
    CHECK(strcmp(mx_strerror(4711), mx_strerror(4712)) == 0);
    CHECK(strcmp(mx_strstatus(4711), mx_strstatus(4712)) == 0);
    /* NULL restores the default handler. */
    CHECK(mx_set_error_handler(NULL) == note_error);
    CHECK(mx_set_error_handler(note_error) == MX_ERRORS_ARE_FATAL);
    take_down();
}

/* ---- segments ---- */

static void every_send(mx_segment_t *list, uint32_t count, mx_return_t code)
{
    mx_request_t out = (mx_request_t)&out, was = out;

    REFUSED(mx_isend(ep, list, count, to_other, 1, NULL, &out), code);
    REFUSED(mx_isend(ep, list, count, me, 1, NULL, NULL), code);
    REFUSED(mx_issend(ep, list, count, to_other, 1, NULL, &out), code);
    CHECK(out == was);
}

static void every_post(mx_segment_t *list, uint32_t count, mx_return_t code)
{
    mx_request_t out = (mx_request_t)&out, was = out;

    every_send(list, count, code);
    REFUSED(mx_irecv(ep, list, count, 1, EXACTLY, NULL, &out), code);
    REFUSED(mx_irecv(ep, list, count, 1, EXACTLY, NULL, NULL), code);
    CHECK(out == was);
}

static void bad_segments(struct side *side)
{
    static mx_segment_t list[300];

    set_up();
    for (int i = 0; i < 300; i++)
        list[i] = (mx_segment_t){buffer, 1};
    every_post(list, 257, MX_BAD_SEG_CNT);
    every_post(list, 300, MX_BAD_SEG_CNT);
    every_post(list, UINT32_MAX, MX_BAD_SEG_CNT);
    every_post(NULL, UINT32_MAX, MX_BAD_SEG_CNT);
    every_post(NULL, 1, MX_BAD_SEG_LIST);
    every_post(NULL, 256, MX_BAD_SEG_LIST);
    list[255].segment_ptr = NULL;
    every_post(list, 256, MX_BAD_SEG_MEM);
    list[0].segment_ptr = NULL;
    every_post(list, 1, MX_BAD_SEG_MEM);
    /* Together more than a message can have; the library reads none of it. */
    for (int i = 0; i < 256; i++)
        list[i] = (mx_segment_t){buffer, UINT32_MAX};
    every_send(list, 256, MX_BAD_SEG_LIST);
    list[1].segment_length = 1;
    every_send(list, 2, MX_BAD_SEG_LIST);
    take_down();
}

/* Sends the segments of `out` to this endpoint, and receives into those of `in`. */
static void to_oneself(mx_segment_t *out, uint32_t out_count, mx_segment_t *in, uint32_t in_count,
                       size_t size)
{
    /* The receive first, then the message first; with each kind of send. */
    for (int turn = 0; turn < 4; turn++) {
        bool early = turn % 2 == 1;
        mx_request_t sent = NULL, received = NULL;

        if (!early)
            OK(mx_irecv(ep, in, in_count, 0x77, EXACTLY, NULL, &received));
        OK((turn < 2 ? mx_isend : mx_issend)(ep, out, out_count, me, 0x77, NULL, &sent));
        if (early)
            OK(mx_irecv(ep, in, in_count, 0x77, EXACTLY, NULL, &received));
        succeed(ep, received, size);
        succeed(ep, sent, size);
    }
}

/* Empty messages in every notation, and receives that are larger than any message. */
static void unusual_segments(struct side *side)
{
    static mx_segment_t most[256];
    static char first[10], second[10];
    mx_segment_t nowhere = {NULL, 0}, somewhere = {buffer, 0}, text = {"12345678901234567890", 20},
                 whole = {first, UINT32_MAX},
                 two[2] = {{first, 10}, {second, UINT32_MAX}},
                 odd[5] = {{NULL, 0}, {first, 10}, {NULL, 0}, {second, 10}, {NULL, 0}},
                 apart[5] = {{NULL, 0}, {"123", 3}, {NULL, 0}, {"45678901234567890", 17}, {NULL, 0}};
    struct {
        mx_segment_t *list;
        uint32_t count;
    } nothing[] = {{NULL, 0}, {&text, 0}, {&nowhere, 1}, {&somewhere, 1}, {most, 256}};

    set_up();
    for (size_t out = 0; out < sizeof nothing / sizeof nothing[0]; out++)
        for (size_t in = 0; in < sizeof nothing / sizeof nothing[0]; in++)
            to_oneself(nothing[out].list, nothing[out].count, nothing[in].list, nothing[in].count,
                       0);
    to_oneself(apart, 5, odd, 5, 20);
    CHECK(memcmp(first, "1234567890", 10) == 0 && memcmp(second, "1234567890", 10) == 0);
    memset(first, 0, sizeof first);
    memset(second, 0, sizeof second);
    to_oneself(&text, 1, two, 2, 20);
    CHECK(memcmp(first, "1234567890", 10) == 0 && memcmp(second, "1234567890", 10) == 0);
    text.segment_length = 10;
    to_oneself(&text, 1, &whole, 1, 10);
    for (int i = 0; i < 256; i++)
        most[i] = (mx_segment_t){first, UINT32_MAX};
    to_oneself(&text, 1, most, 256, 10);
    CHECK(memcmp(first, "1234567890", 10) == 0);
    take_down();
}

/* ---- empty messages between two processes ---- */

enum { WAYS = 4 };

static void nothing_both_ways(struct side *side)
{
    struct pair pair = pair_open(side);
    mx_segment_t nowhere[2] = {{NULL, 0}, {NULL, 0}};
    struct {
        mx_segment_t *list;
        uint32_t count;
    } nothing[WAYS] = {{NULL, 0}, {nowhere, 0}, {nowhere, 1}, {nowhere, 2}};
    mx_request_t received[WAYS], sent[WAYS][2];

    for (int round = 0; round < 2; round++) {
        for (int way = 0; way < WAYS; way++)
            OK(mx_irecv(pair.ep, nothing[way].list, nothing[way].count, (uint64_t)way, EXACTLY,
                        NULL, &received[way]));
        pair_sync(&pair);
        for (int way = 0; way < WAYS; way++) {
            OK(mx_isend(pair.ep, nothing[way].list, nothing[way].count, pair.peer, (uint64_t)way,
                        NULL, &sent[way][0]));
            OK(mx_issend(pair.ep, nothing[way].list, nothing[way].count, pair.peer,
                         (uint64_t)way + 100, NULL, &sent[way][1]));
        }
        for (int way = 0; way < WAYS; way++) {
            succeed(pair.ep, received[way], 0);
            CHECK_THAT(probe_for(pair.ep, (uint64_t)way + 100, EXACTLY).msg_length, ==, 0);
            succeed(pair.ep, receive(pair.ep, NULL, 0, (uint64_t)way + 100, EXACTLY), 0);
        }
        for (int way = 0; way < WAYS; way++) {
            succeed(pair.ep, sent[way][0], 0);
            succeed(pair.ep, sent[way][1], 0);
        }
        pair_sync(&pair);
    }
    pair_close(&pair);
}

/* ---- permanent rejections ---- */

static void matched(void *context, uint64_t bits, int length)
{
}

static void retired_functions(struct side *side)
{
    mx_request_t out = (mx_request_t)&out, was = out;

    set_up();
    REFUSED(mx_iput(ep, buffer, 10, to_other, 0, NULL, &out), MX_FAILURE);
    REFUSED(mx_iget(ep, buffer, 10, to_other, 0, NULL, &out), MX_FAILURE);
    REFUSED(mx_register_unexp_callback(ep, matched, NULL), MX_FAILURE);
    REFUSED(mx_register_unexp_callback(ep, NULL, NULL), MX_FAILURE);
    CHECK(out == was);
    take_down();
}

PARTY_TESTS(
    SOLO(outputs_and_inputs_that_may_be_left_out, outputs_left_out),
    SOLO(segment_lists_are_checked_before_anything_is_posted, bad_segments),
    SOLO(no_bytes_and_more_room_than_a_message_needs_are_answered, unusual_segments),
    PAIR(no_bytes_go_both_ways_however_they_are_named, nothing_both_ways, nothing_both_ways),
    SOLO(one_sided_calls_and_the_old_callback_are_refused, retired_functions))
