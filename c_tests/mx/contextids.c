/*
 * Context ids: a field of the match bits that divides an endpoint into queues of their own.
 *
 *     MX_PARAM_CONTEXT_ID {bits 8, shift 56}      0xCC............    CC = 00 .. ff
 *
 * Receives must name theirs; ipeek and peek, which name none, are refused.
 */
#include "support/party.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../support/pattern.h"

static mx_endpoint_t open_with(uint8_t bits, uint8_t shift)
{
    mx_param_t param = {.key = MX_PARAM_CONTEXT_ID};
    mx_endpoint_t ep = NULL;

    param.val.context_id.bits = bits;
    param.val.context_id.shift = shift;
    OK(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, &param, 1, &ep));
    return ep;
}

static const struct {
    uint8_t bits, shift;
} fields[] = {{1, 0}, {8, 56}, {16, 48}, {16, 0}, {4, 13}, {1, 63}};
enum { FIELDS = sizeof fields / sizeof fields[0] };

static void masks_must_cover_the_field(struct side *side)
{
    (void)side;
    party_start();
    for (int i = 0; i < FIELDS; i++) {
        mx_endpoint_t ep = open_with(fields[i].bits, fields[i].shift);
        uint64_t field = ((UINT64_C(1) << fields[i].bits) - 1) << fields[i].shift;
        mx_request_t request = (mx_request_t)&ep, was = request, peeked = was;
        mx_status_t status;
        uint32_t result = 77;
        const mx_return_t code = MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK;

        REFUSED(mx_irecv(ep, NULL, 0, 0, ANYTHING, NULL, &request), code);
        REFUSED(mx_irecv(ep, NULL, 0, 0, ~field, NULL, &request), code);
        /* All of it but one bit. */
        REFUSED(mx_irecv(ep, NULL, 0, 0, ~(UINT64_C(1) << fields[i].shift), NULL, &request), code);
        CHECK(request == was);
        REFUSED(mx_ipeek(ep, &peeked, &result), MX_NOT_SUPPORTED_WITH_CONTEXT_ID);
        REFUSED(mx_peek(ep, 1, &peeked, &result), MX_NOT_SUPPORTED_WITH_CONTEXT_ID);
        CHECK(result == 77 && peeked == was);
        OK(mx_irecv(ep, NULL, 0, 0, field, NULL, &request));
        OK(mx_cancel(ep, &request, &result));
        CHECK_THAT(result, ==, 1);
        OK(mx_irecv(ep, NULL, 0, 0, EXACTLY, NULL, &request));
        OK(mx_cancel(ep, &request, &result));
        /* Looking for completions needs no whole mask. */
        OK(mx_test_any(ep, 0, ANYTHING, &status, &result));
        CHECK_THAT(result, ==, 0);
        exchange(ep, address_of(ep), ep, 1000, EXACTLY);
        exchange(ep, address_of(ep), ep, 1000, 0);
        OK(mx_close_endpoint(ep));
    }
    party_stop();
}

/* Each class has its order, whatever the others do. */
static void classes_are_independent(struct side *side)
{
    enum { CLASSES = 4, EACH = 25 };
    mx_endpoint_t a, b;
    mx_endpoint_addr_t to_b;
    int numbers[CLASSES * EACH];

    (void)side;
    party_start();
    a = open_with(8, 56);
    b = open_with(8, 56);
    to_b = connect_to(a, id_of(b));
    for (int i = 0; i < CLASSES * EACH; i++) {
        mx_segment_t segment = {&numbers[i], sizeof(int)};

        numbers[i] = i;
        OK(mx_isend(a, &segment, 1, to_b, (uint64_t)(i % CLASSES) << 56 | (uint64_t)i, NULL,
                    NULL));
    }
    for (int class = CLASSES - 1; class >= 0; class--)
        for (int i = class; i < CLASSES * EACH; i += CLASSES) {
            const uint64_t mask = UINT64_C(0xff) << 56;
            int in = -1;
            mx_status_t status = probe_for(b, (uint64_t)class << 56, mask);

            CHECK_THAT(status.match_info & 0xffff, ==, i);
            succeed(b, receive(b, &in, sizeof in, (uint64_t)class << 56, mask), sizeof in);
            CHECK_THAT(in, ==, i);
        }
    OK(mx_close_endpoint(b));
    party_close(a);
}

/* A thread for each class waits for it alone. */
struct class_thread {
    pthread_t thread;
    mx_endpoint_t ep;
    uint64_t class;
};

enum { THREADS = 4, PER_THREAD = 100 };

static void *serve_class(void *argument)
{
    struct class_thread *self = argument;
    const uint64_t mask = UINT64_C(0xffff);
    int in;

    for (int i = 0; i < PER_THREAD; i++) {
        mx_status_t status;
        uint32_t result = 0;

        receive(self->ep, &in, sizeof in, self->class, mask);
        OK(mx_wait_any(self->ep, WAIT_MS, self->class, mask, &status, &result));
        CHECK_THAT(result, ==, 1);
        CHECK(status.context == &in);
        CHECK_THAT(status.match_info & mask, ==, self->class);
        CHECK_THAT(in, ==, i);
    }
    return NULL;
}

static void threads_serve_classes(struct side *side)
{
    mx_endpoint_t a, b;
    mx_endpoint_addr_t to_b;
    struct class_thread threads[THREADS];
    static int numbers[PER_THREAD];

    (void)side;
    a = party_open();
    b = open_with(16, 0);
    to_b = connect_to(a, id_of(b));
    for (int t = 0; t < THREADS; t++) {
        threads[t] = (struct class_thread){.ep = b, .class = (uint64_t)(t * 21 + 1)};
        CHECK(pthread_create(&threads[t].thread, NULL, serve_class, &threads[t]) == 0);
    }
    for (int i = 0; i < PER_THREAD; i++) {
        mx_segment_t segment = {&numbers[i], sizeof(int)};

        numbers[i] = i;
        for (int t = 0; t < THREADS; t++)
            OK(mx_isend(a, &segment, 1, to_b, threads[t].class | (uint64_t)i << 32, NULL, NULL));
    }
    for (int t = 0; t < THREADS; t++)
        CHECK(pthread_join(threads[t].thread, NULL) == 0);
    OK(mx_close_endpoint(b));
    party_close(a);
}

/* Connects take part with the bits they are given. */
static void connects_have_a_class(struct side *side)
{
    mx_endpoint_t a, b;
    mx_request_t request;
    mx_status_t status;
    uint32_t result = 0;

    (void)side;
    party_start();
    a = open_with(8, 0);
    b = open_with(8, 0);
    OK(mx_iconnect(a, local_nic(), id_of(b), KEY, 0xabcd07, NULL, &request));
    OK(mx_wait_any(a, WAIT_MS, 7, 0xff, &status, &result));
    CHECK_THAT(result, ==, 1);
    STATUS_IS(status, MX_STATUS_SUCCESS);
    CHECK_THAT(status.match_info, ==, 0xabcd07);
    exchange(a, status.source, b, 100, 7);
    OK(mx_close_endpoint(b));
    party_close(a);
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        SOLO(receives_name_their_context_and_peeking_is_refused, masks_must_cover_the_field),
        SOLO(each_context_keeps_its_own_order, classes_are_independent),
        SOLO(threads_wait_for_contexts_of_their_own, threads_serve_classes),
        SOLO(a_connect_completes_in_its_context, connects_have_a_class),
        {0},
    };

    return party_main(argc, argv, scenarios);
}
