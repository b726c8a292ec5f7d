/*
 * Bad arguments, function by function: the documented code, the handler told once, nothing changed.
 *
 * Failures to open, connect or resolve are in lifecycle.c, connect.c and names.c.
 */
#include "support/party.h"

#include <stdlib.h>
#include <string.h>

#include "../support/pattern.h"

static mx_endpoint_t ep, other;
static mx_endpoint_addr_t me, no_address, to_other;
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

/* Outputs are as they were, and so are the endpoint and its receive. */
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

/* ---- endpoints ---- */

static mx_unexp_handler_action_t no_handler(void *context, mx_endpoint_addr_t source,
                                            uint64_t bits, uint32_t length, void *data)
{
    (void)context;
    (void)source;
    (void)bits;
    (void)length;
    (void)data;
    return MX_RECV_CONTINUE;
}

static void every_call_with(mx_endpoint_t bad)
{
    mx_request_t request = pending, out = (mx_request_t)&out, was = out;
    mx_endpoint_addr_t address = to_other;

    REFUSED(mx_wakeup(bad), MX_BAD_ENDPOINT);
    REFUSED(mx_disable_progression(bad), MX_BAD_ENDPOINT);
    REFUSED(mx_reenable_progression(bad), MX_BAD_ENDPOINT);
    REFUSED(mx_isend(bad, NULL, 0, to_other, 1, NULL, &out), MX_BAD_ENDPOINT);
    REFUSED(mx_issend(bad, NULL, 0, to_other, 1, NULL, &out), MX_BAD_ENDPOINT);
    REFUSED(mx_irecv(bad, NULL, 0, 1, EXACTLY, NULL, &out), MX_BAD_ENDPOINT);
    REFUSED(mx_cancel(bad, &request, &result), MX_BAD_ENDPOINT);
    REFUSED(mx_test(bad, &request, &status, &result), MX_BAD_ENDPOINT);
    REFUSED(mx_wait(bad, &request, MX_INFINITE, &status, &result), MX_BAD_ENDPOINT);
    REFUSED(mx_test_any(bad, 0, ANYTHING, &status, &result), MX_BAD_ENDPOINT);
    REFUSED(mx_wait_any(bad, MX_INFINITE, 0, ANYTHING, &status, &result), MX_BAD_ENDPOINT);
    REFUSED(mx_ipeek(bad, &out, &result), MX_BAD_ENDPOINT);
    REFUSED(mx_peek(bad, MX_INFINITE, &out, &result), MX_BAD_ENDPOINT);
    REFUSED(mx_iprobe(bad, 0, ANYTHING, &status, &result), MX_BAD_ENDPOINT);
    REFUSED(mx_probe(bad, MX_INFINITE, 0, ANYTHING, &status, &result), MX_BAD_ENDPOINT);
    REFUSED(mx_ibuffered(bad, &request, &result), MX_BAD_ENDPOINT);
    REFUSED(mx_buffered(bad, &request, MX_INFINITE, &result), MX_BAD_ENDPOINT);
    REFUSED(mx_connect(bad, local_nic(), 0, KEY, MX_INFINITE, &address), MX_BAD_ENDPOINT);
    REFUSED(mx_iconnect(bad, local_nic(), 0, KEY, 1, NULL, &out), MX_BAD_ENDPOINT);
    REFUSED(mx_get_endpoint_addr(bad, &address), MX_BAD_ENDPOINT);
    REFUSED(mx_disconnect(bad, to_other), MX_BAD_ENDPOINT);
    REFUSED(mx_register_unexp_handler(bad, no_handler, NULL), MX_BAD_ENDPOINT);
    REFUSED(mx_register_unexp_handler(bad, NULL, NULL), MX_BAD_ENDPOINT);
    REFUSED(mx_forget(bad, &request), MX_BAD_ENDPOINT);
    REFUSED(mx_progress(bad), MX_BAD_ENDPOINT);
    REFUSED(mx_set_request_timeout(bad, NULL, 1), MX_BAD_ENDPOINT);
    REFUSED(mx_set_request_timeout(bad, request, 1), MX_BAD_ENDPOINT);
    REFUSED(mx_close_endpoint(bad), MX_BAD_ENDPOINT);
    if (bad != NULL)
        REFUSED(mx_get_info(bad, MX_COUNTERS_COUNT, NULL, 0, &result, 4), MX_BAD_ENDPOINT);
    CHECK(request == pending && out == was);
    CHECK(same_address(address, to_other));
}

static void bad_endpoints(struct side *side)
{
    mx_endpoint_t closed;

    (void)side;
    set_up();
    closed = open_any();
    OK(mx_close_endpoint(closed));
    every_call_with(NULL);
    every_call_with(closed);
    every_call_with((mx_endpoint_t)&closed);
    every_call_with((mx_endpoint_t)1);
    every_call_with((mx_endpoint_t)UINTPTR_MAX);
    every_call_with((mx_endpoint_t)((uintptr_t)ep ^ UINT64_C(1) << 40)); /* another use of the slot */
    every_call_with((mx_endpoint_t)((uintptr_t)ep + 500));               /* a slot not in use */
    take_down();
}

/* ---- requests ---- */

static void every_call_on(mx_request_t *request)
{
    void *context = &context;
    mx_request_t was = request != NULL ? *request : NULL;

    REFUSED(mx_test(ep, request, &status, &result), MX_BAD_REQUEST);
    REFUSED(mx_wait(ep, request, MX_INFINITE, &status, &result), MX_BAD_REQUEST);
    REFUSED(mx_cancel(ep, request, &result), MX_BAD_REQUEST);
    REFUSED(mx_ibuffered(ep, request, &result), MX_BAD_REQUEST);
    REFUSED(mx_buffered(ep, request, MX_INFINITE, &result), MX_BAD_REQUEST);
    REFUSED(mx_forget(ep, request), MX_BAD_REQUEST);
    if (request != NULL && *request != NULL)
        REFUSED(mx_set_request_timeout(ep, *request, 1), MX_BAD_REQUEST);
    CHECK(context == &context);
    CHECK(request == NULL || *request == was);
}

static void bad_requests(struct side *side)
{
    mx_request_t used, null = NULL, garbage = (mx_request_t)&used, foreign;
    void *context = &context;

    (void)side;
    set_up();
    used = send_to(ep, me, NULL, 0, 1);
    succeed(ep, used, 0);
    succeed(ep, receive(ep, NULL, 0, 1, EXACTLY), 0);
    foreign = receive(other, NULL, 0, 1, EXACTLY);
    every_call_on(NULL);
    every_call_on(&null);
    every_call_on(&used);
    every_call_on(&garbage);
    every_call_on(&foreign);
    garbage = (mx_request_t)((uintptr_t)pending ^ UINT64_C(1) << 50); /* another use of the place */
    every_call_on(&garbage);
    garbage = (mx_request_t)UINTPTR_MAX;
    every_call_on(&garbage);
    REFUSED(mx_context(NULL, &context), MX_BAD_REQUEST);
    REFUSED(mx_context(&null, &context), MX_BAD_REQUEST);
    REFUSED(mx_context(&used, &context), MX_BAD_REQUEST);
    REFUSED(mx_context(&garbage, &context), MX_BAD_REQUEST);
    CHECK(context == &context);
    /* The other endpoint's is as it was. */
    OK(mx_cancel(other, &foreign, &result));
    CHECK_THAT(result, ==, 1);
    result = 77;
    take_down();
}

/* ---- outputs ---- */

static void missing_outputs(struct side *side)
{
    uint64_t nic = 77;
    uint32_t id = 77;

    (void)side;
    set_up();
    REFUSED(mx_test(ep, &pending, NULL, &result), MX_FAILURE);
    REFUSED(mx_test(ep, &pending, &status, NULL), MX_FAILURE);
    REFUSED(mx_wait(ep, &pending, 1, NULL, &result), MX_FAILURE);
    REFUSED(mx_wait(ep, &pending, 1, &status, NULL), MX_FAILURE);
    REFUSED(mx_test_any(ep, 0, ANYTHING, NULL, &result), MX_FAILURE);
    REFUSED(mx_test_any(ep, 0, ANYTHING, &status, NULL), MX_FAILURE);
    REFUSED(mx_wait_any(ep, 1, 0, ANYTHING, NULL, &result), MX_FAILURE);
    REFUSED(mx_wait_any(ep, 1, 0, ANYTHING, &status, NULL), MX_FAILURE);
    REFUSED(mx_iprobe(ep, 0, ANYTHING, NULL, &result), MX_FAILURE);
    REFUSED(mx_iprobe(ep, 0, ANYTHING, &status, NULL), MX_FAILURE);
    REFUSED(mx_probe(ep, 1, 0, ANYTHING, NULL, &result), MX_FAILURE);
    REFUSED(mx_probe(ep, 1, 0, ANYTHING, &status, NULL), MX_FAILURE);
    REFUSED(mx_ipeek(ep, NULL, &result), MX_BAD_REQUEST);
    REFUSED(mx_ipeek(ep, &pending, NULL), MX_FAILURE);
    REFUSED(mx_peek(ep, 1, NULL, &result), MX_BAD_REQUEST);
    REFUSED(mx_peek(ep, 1, &pending, NULL), MX_FAILURE);
    REFUSED(mx_cancel(ep, &pending, NULL), MX_FAILURE);
    REFUSED_SOMEHOW(mx_ibuffered(ep, &pending, NULL));
    REFUSED_SOMEHOW(mx_buffered(ep, &pending, 1, NULL));
    REFUSED(mx_context(&pending, NULL), MX_FAILURE);
    REFUSED(mx_get_endpoint_addr(ep, NULL), MX_FAILURE);
    REFUSED(mx_get_endpoint_addr_context(me, NULL), MX_FAILURE);
    REFUSED(mx_decompose_endpoint_addr(me, NULL, &id), MX_FAILURE);
    REFUSED(mx_decompose_endpoint_addr(me, &nic, NULL), MX_FAILURE);
    REFUSED(mx_decompose_endpoint_addr2(me, NULL, &id, &id), MX_FAILURE);
    REFUSED(mx_decompose_endpoint_addr2(me, &nic, NULL, &id), MX_FAILURE);
    REFUSED(mx_decompose_endpoint_addr2(me, &nic, &id, NULL), MX_FAILURE);
    CHECK(nic == 77 && id == 77);
    take_down();
}

/* ---- masks ---- */

static void bits_outside_the_mask(struct side *side)
{
    static const struct {
        uint64_t bits, mask;
    } bad[] = {{1, 0}, {1, 2}, {EXACTLY, EXACTLY >> 1}, {UINT64_C(1) << 63, 1}, {3, 1}};
    mx_request_t out = (mx_request_t)&out, was = out;

    (void)side;
    set_up();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bits = bad[i].bits, mask = bad[i].mask;

        REFUSED(mx_irecv(ep, NULL, 0, bits, mask, NULL, &out), MX_BAD_MATCH_MASK);
        REFUSED(mx_irecv(ep, NULL, 0, bits, mask, NULL, NULL), MX_BAD_MATCH_MASK);
        REFUSED(mx_test_any(ep, bits, mask, &status, &result), MX_BAD_MATCH_MASK);
        REFUSED(mx_wait_any(ep, MX_INFINITE, bits, mask, &status, &result), MX_BAD_MATCH_MASK);
        REFUSED(mx_iprobe(ep, bits, mask, &status, &result), MX_BAD_MATCH_MASK);
        REFUSED(mx_probe(ep, MX_INFINITE, bits, mask, &status, &result), MX_BAD_MATCH_MASK);
    }
    CHECK(out == was);
    take_down();
}

/* ---- segments ---- */

static void every_post(mx_segment_t *list, uint32_t count, mx_return_t code)
{
    mx_request_t out = (mx_request_t)&out, was = out;

    REFUSED(mx_isend(ep, list, count, to_other, 1, NULL, &out), code);
    REFUSED(mx_isend(ep, list, count, me, 1, NULL, NULL), code);
    REFUSED(mx_issend(ep, list, count, to_other, 1, NULL, &out), code);
    REFUSED(mx_irecv(ep, list, count, 1, EXACTLY, NULL, &out), code);
    REFUSED(mx_irecv(ep, list, count, 1, EXACTLY, NULL, NULL), code);
    CHECK(out == was);
}

static void bad_segments(struct side *side)
{
    static mx_segment_t list[300];

    (void)side;
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
    /* Together more than a message can have; nothing of it is looked at. */
    list[0] = (mx_segment_t){buffer, UINT32_MAX};
    list[1] = (mx_segment_t){buffer, 1};
    every_post(list, 2, MX_BAD_SEG_LIST);
    for (int i = 0; i < 256; i++)
        list[i] = (mx_segment_t){buffer, UINT32_MAX};
    every_post(list, 256, MX_BAD_SEG_LIST);
    take_down();
}

/* ---- addresses ---- */

static void every_call_to(mx_endpoint_addr_t bad)
{
    mx_request_t out = (mx_request_t)&out, was = out;
    mx_segment_t segment = {buffer, sizeof buffer};

    REFUSED(mx_isend(ep, &segment, 1, bad, 1, NULL, &out), MX_BAD_ENDPOINT);
    REFUSED(mx_isend(ep, &segment, 1, bad, 1, NULL, NULL), MX_BAD_ENDPOINT);
    REFUSED(mx_issend(ep, &segment, 1, bad, 1, NULL, &out), MX_BAD_ENDPOINT);
    REFUSED(mx_disconnect(ep, bad), MX_BAD_ENDPOINT);
    CHECK(out == was);
}

static void about_an_address(mx_endpoint_addr_t bad)
{
    uint64_t nic = 77;
    uint32_t id = 77, session = 77;
    void *context = &context;

    REFUSED(mx_decompose_endpoint_addr(bad, &nic, &id), MX_BAD_ENDPOINT);
    REFUSED(mx_decompose_endpoint_addr2(bad, &nic, &id, &session), MX_BAD_ENDPOINT);
    REFUSED(mx_set_endpoint_addr_context(bad, &context), MX_BAD_ENDPOINT);
    REFUSED(mx_get_endpoint_addr_context(bad, &context), MX_BAD_ENDPOINT);
    CHECK(nic == 77 && id == 77 && session == 77 && context == &context);
}

static void bad_addresses(struct side *side)
{
    mx_endpoint_addr_t bad, others;

    (void)side;
    set_up();
    memset(&no_address, 0, sizeof no_address);
    every_call_to(no_address);
    about_an_address(no_address);
    memset(&bad, 0xff, sizeof bad);
    every_call_to(bad);
    about_an_address(bad);
    memset(&bad, 0x31, sizeof bad);
    every_call_to(bad);
    about_an_address(bad);
    bad = to_other;
    bad.stuff[1] += 1000; /* no such peer */
    every_call_to(bad);
    about_an_address(bad);
    /* The same peer as another endpoint knows it. */
    others = connect_to(other, id_of(ep));
    every_call_to(others);
    every_call_to(address_of(other));
    take_down();
}

/* ---- what is refused for good ---- */

static void matched(void *context, uint64_t bits, int length)
{
    (void)context;
    (void)bits;
    (void)length;
}

static void retired_functions(struct side *side)
{
    mx_request_t out = (mx_request_t)&out, was = out;

    (void)side;
    set_up();
    REFUSED(mx_iput(ep, buffer, 10, to_other, 0, NULL, &out), MX_FAILURE);
    REFUSED(mx_iget(ep, buffer, 10, to_other, 0, NULL, &out), MX_FAILURE);
    REFUSED(mx_register_unexp_callback(ep, matched, NULL), MX_FAILURE);
    REFUSED(mx_register_unexp_callback(ep, NULL, NULL), MX_FAILURE);
    CHECK(out == was);
    take_down();
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        SOLO(endpoints_that_are_none_are_refused_everywhere, bad_endpoints),
        SOLO(requests_that_are_none_are_refused_everywhere, bad_requests),
        SOLO(missing_outputs_are_refused, missing_outputs),
        SOLO(bits_outside_the_mask_are_refused, bits_outside_the_mask),
        SOLO(segment_lists_are_checked_before_anything_is_posted, bad_segments),
        SOLO(addresses_that_are_none_are_refused, bad_addresses),
        SOLO(one_sided_calls_and_the_old_callback_are_refused, retired_functions),
        {0},
    };

    return party_main(argc, argv, scenarios);
}
