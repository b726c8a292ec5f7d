/*
 * Request time-outs: how long sends and connects may take.
 *
 *     (ep, NULL, ms)   those posted from now on          (ep, request, ms)   this one
 *     sends, connects  TIMEOUT or ENDPOINT_UNREACHABLE   receives   not concerned
 */
#include "support/party.h"

#include <stdlib.h>
#include <string.h>

#include "../support/pattern.h"

enum { SHORT_MS = 150, LARGE = 300000 };

static mx_endpoint_t ep, deaf;
static mx_endpoint_addr_t to_deaf;
static char *buffer;

/* The peer answers nothing from now on. */
static void open_deaf(void)
{
    ep = party_open();
    deaf = open_any();
    to_deaf = connect_to(ep, id_of(deaf));
    OK(mx_disable_progression(deaf));
    buffer = fenced(LARGE);
}

static void close_deaf(void)
{
    OK(mx_close_endpoint(deaf));
    party_close(ep);
    fenced_free(buffer);
}

/* The time-out is that of the send, within what a busy machine may add. */
static void expires(mx_request_t request, int64_t begin)
{
    mx_status_t status = finish(ep, request);
    int64_t took = now_ms() - begin;

    if (status.code != MX_STATUS_TIMEOUT && status.code != MX_STATUS_ENDPOINT_UNREACHABLE)
        FAIL("time is up: %s", status_text(status.code));
    CHECK_THAT(errors.count, ==, 1);
    CHECK(errors.code == MX_TIMEOUT || errors.code == MX_CONNECTION_FAILED);
    CHECK_THAT(took, >=, SHORT_MS - 20);
    CHECK_THAT(took, <, SHORT_MS + 3000 * slower());
}

static void later_requests(struct side *side)
{
    mx_request_t earlier, request;
    int64_t begin;

    (void)side;
    open_deaf();
    earlier = ssend_to(ep, to_deaf, buffer, 100, 1);
    OK(mx_set_request_timeout(ep, NULL, SHORT_MS));
    begin = now_ms();
    expires(ssend_to(ep, to_deaf, buffer, 100, 2), begin);
    begin = now_ms();
    expires(send_to(ep, to_deaf, buffer, LARGE, 3), begin);
    /* 0 is for ever, as it is everywhere. */
    OK(mx_set_request_timeout(ep, NULL, MX_INFINITE));
    request = ssend_to(ep, to_deaf, buffer, 100, 4);
    stays_pending(ep, &request, SHORT_MS + 50);
    CHECK(earlier != NULL);
    close_deaf();
}

static void one_request(struct side *side)
{
    mx_request_t hurried, patient;
    int64_t begin;

    (void)side;
    open_deaf();
    patient = ssend_to(ep, to_deaf, buffer, LARGE, 1);
    hurried = ssend_to(ep, to_deaf, buffer, LARGE, 2);
    OK(mx_set_request_timeout(ep, hurried, SHORT_MS));
    begin = now_ms();
    expires(hurried, begin);
    stays_pending(ep, &patient, 30);
    OK(mx_set_request_timeout(ep, patient, 60000));
    stays_pending(ep, &patient, 30);
    /* One that is done is out of reach of it. */
    close_deaf();
}

static void connects(struct side *side)
{
    mx_endpoint_t mute;
    mx_endpoint_addr_t address, before;
    mx_request_t request;
    mx_status_t status;
    int64_t begin;
    uint32_t mute_id;

    (void)side;
    open_deaf();
    mute = open_any();
    mute_id = id_of(mute);
    OK(mx_disable_progression(mute));
    memset(&address, 0x21, sizeof address);
    before = address;
    begin = now_ms();
    REFUSED(mx_connect(ep, local_nic(), mute_id, KEY, SHORT_MS, &address), MX_TIMEOUT);
    CHECK_THAT(now_ms() - begin, >=, SHORT_MS - 1);
    CHECK(same_address(address, before));
    OK(mx_set_request_timeout(ep, NULL, SHORT_MS));
    begin = now_ms();
    OK(mx_iconnect(ep, local_nic(), mute_id, KEY, 1, NULL, &request));
    expires(request, begin);
    /* And once it listens, it works. */
    OK(mx_reenable_progression(mute));
    OK(mx_set_request_timeout(ep, NULL, WAIT_MS * (uint32_t)slower()));
    OK(mx_iconnect(ep, local_nic(), mute_id, KEY, 1, NULL, &request));
    status = finish(ep, request);
    STATUS_IS(status, MX_STATUS_SUCCESS);
    exchange(ep, status.source, mute, 1000, 1);
    OK(mx_close_endpoint(mute));
    close_deaf();
}

static void receives(struct side *side)
{
    mx_request_t request, limited;

    (void)side;
    open_deaf();
    OK(mx_set_request_timeout(ep, NULL, SHORT_MS));
    request = receive(ep, buffer, LARGE, 1, EXACTLY);
    limited = receive(ep, buffer, LARGE, 2, EXACTLY);
    OK(mx_set_request_timeout(ep, limited, SHORT_MS));
    stays_pending(ep, &request, 2 * SHORT_MS);
    stays_pending(ep, &limited, 2 * SHORT_MS);
    succeed(ep, send_to(ep, address_of(ep), buffer, 0, 1), 0);
    succeed(ep, send_to(ep, address_of(ep), buffer, 0, 2), 0);
    succeed(ep, request, 0);
    succeed(ep, limited, 0);
    close_deaf();
}

/* Requests that take long but make progress do not time out. */
static void nothing_that_moves(struct side *side)
{
    enum { HUGE = 48 << 20 };
    struct pair pair = pair_open(side);
    char *huge = malloc(HUGE);

    CHECK(huge != NULL);
    memset(huge, 1, HUGE);
    OK(mx_set_request_timeout(pair.ep, NULL, 1000));
    if (pair.id < pair.peer_id) {
        succeed(pair.ep, send_to(pair.ep, pair.peer, huge, HUGE, 1), HUGE);
    } else {
        succeed(pair.ep, receive(pair.ep, huge, HUGE, 1, EXACTLY), HUGE);
    }
    pair_close(&pair);
    free(huge);
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        SOLO(a_time_out_of_the_endpoint_concerns_later_sends, later_requests),
        SOLO(a_time_out_of_a_request_concerns_that_one, one_request),
        SOLO(connects_time_out_with_the_code_that_says_so, connects),
        SOLO(receives_do_not_time_out, receives),
        PAIR(a_transfer_that_gets_on_does_not_time_out, nothing_that_moves, nothing_that_moves),
        {0},
    };

    return party_main(argc, argv, scenarios);
}
