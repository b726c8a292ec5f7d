/*
 * mx_pingpong: latency of a message, as half of a round trip.
 *
 *   this side    ---- DATA ---->    other side        both poll with mx_test, or sleep in mx_wait (-w)
 *                <--- DATA -----
 *
 * Uses the public headers only. mx_perf/ contains what it shares with mx_stream.
 */
#include "mx_perf/measure.h"

#include <stdio.h>

static uint32_t count(uint32_t size)
{
    uint32_t rounds = (8u << 20) / (size + 1);

    return rounds < 4 ? 4 : rounds > 2000 ? 2000 : rounds;
}

/* Makes one round trip. */
static const char *round_trip(struct session *session, struct ring *buffers, uint32_t n)
{
    const struct plan *plan = &session->plan;
    unsigned char *ping = ring_data(buffers, 0), *pong = ring_data(buffers, 1);
    mx_request_t *sent = ring_request(buffers, 0), *back = ring_request(buffers, 1);
    const char *error;

    if (plan->verify)
        plan_fill(ping, plan->size, n);
    error = link_post_recv(&session->link, pong, plan->size, MATCH_DATA | plan->id, back);
    if (error == NULL)
        error = link_post_send(&session->link, ping, plan->size, session->peer,
                               MATCH_DATA | plan->id, sent);
    /* Waits for the send first: a large one notices at once that the other side is gone. */
    if (error == NULL)
        error = link_finish(&session->link, sent, plan->size);
    if (error == NULL)
        error = link_finish(&session->link, back, plan->size);
    if (error == NULL && plan->verify && !plan_intact(pong, plan->size, n))
        error = "a message came back with wrong bytes";
    return error;
}

/* Makes the round trips of one repeat. An error ends the process, with everything under way. */
static const char *repeat(struct session *session, double *seconds)
{
    struct ring buffers;
    const char *error = NULL;
    double start;
    uint32_t n;

    if (!ring_make(&buffers, 2, session->plan.size))
        return "out of memory";
    start = link_now();
    for (n = 0; n < session->plan.count && error == NULL; n++)
        error = round_trip(session, &buffers, n);
    *seconds = link_now() - start;
    if (error == NULL)
        ring_free(&buffers);
    return error;
}

static void heading(void)
{
    printf("%10s %10s %12s %10s %10s %10s\n", "bytes", "rounds", "half, us", "least", "most",
           "MB/s");
}

static void row(const struct session *session, const struct times *times)
{
    const struct plan *plan = &session->plan;
    double to_us = 1e6 / (2.0 * plan->count), us = times->median * to_us;
    double least = times->least * to_us, most = times->most * to_us;

    printf(session->options->json
               ? "{\"test\":\"pingpong\",\"size\":%u,\"rounds\":%u,\"median_us\":%.4f,"
                 "\"least_us\":%.4f,\"most_us\":%.4f,\"mb_s\":%.2f}\n"
               : "%10u %10u %12.3f %10.3f %10.3f %10.1f\n",
           plan->size, plan->count, us, least, most, plan->size / us);
}

static const struct measurement PINGPONG = {
    .program =
        {
            .name = "mx_pingpong",
            .summary = "Sends messages of growing size there and back, and prints half of what a "
                       "round trip takes.",
            .counted = "round trips",
            .first_size = 0,
            .last_size = 4u << 20,
        },
    .kind = PLAN_PING,
    .count = count,
    .repeat = repeat,
    .heading = heading,
    .row = row,
};

int main(int argc, char **argv)
{
    return measure_main(&PINGPONG, argc, argv);
}
