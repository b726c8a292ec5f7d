/*
 * mx_stream: bandwidth in one direction, with many messages under way at a time.
 *
 *   this side    ---- DATA DATA DATA ---->    other side     up to -W of them at a time
 *                <------ ANSWER ----------    when all have arrived
 *
 * Uses the public headers only. mx_perf/ contains what it shares with mx_pingpong.
 */
#include "mx_perf/measure.h"

#include <stdio.h>

static uint32_t count(uint32_t size)
{
    uint32_t messages = (64u << 20) / (size + 1);

    return messages < 16 ? 16 : messages > 20000 ? 20000 : messages;
}

/* Sends the messages of one repeat. An error ends the process, with everything under way. */
static const char *repeat(struct session *session, double *seconds)
{
    const struct plan *plan = &session->plan;
    const char *error = NULL;
    struct ring ring;
    double start;
    uint32_t n;

    if (!ring_make(&ring, plan_buffers(plan->size, plan->window), plan->size))
        return "out of memory";
    start = link_now();
    for (n = 0; n < plan->count && error == NULL; n++) {
        error = link_finish(&session->link, ring_request(&ring, n), plan->size);
        if (error == NULL && plan->verify)
            plan_fill(ring_data(&ring, n), plan->size, n);
        if (error == NULL)
            error = link_post_send(&session->link, ring_data(&ring, n), plan->size, session->peer,
                                   MATCH_DATA | plan->id, ring_request(&ring, n));
    }
    for (n = 0; n < ring.slots && error == NULL; n++)
        error = link_finish(&session->link, ring_request(&ring, n), plan->size);
    if (error == NULL)
        error = measure_answer(session);
    *seconds = link_now() - start;
    if (error == NULL)
        ring_free(&ring);
    return error;
}

static void heading(void)
{
    printf("%10s %10s %12s %10s %10s %12s\n", "bytes", "messages", "MB/s", "least", "most",
           "messages/s");
}

static void row(const struct session *session, const struct times *times)
{
    const struct plan *plan = &session->plan;
    double megabytes = 1e-6 * plan->size * plan->count;

    printf(session->options->json
               ? "{\"test\":\"stream\",\"size\":%u,\"messages\":%u,\"mb_s\":%.2f,"
                 "\"least_mb_s\":%.2f,\"most_mb_s\":%.2f,\"msg_s\":%.0f}\n"
               : "%10u %10u %12.1f %10.1f %10.1f %12.0f\n",
           plan->size, plan->count, megabytes / times->median, megabytes / times->most,
           megabytes / times->least, plan->count / times->median);
}

static const struct measurement STREAM = {
    .program =
        {
            .name = "mx_stream",
            .summary = "Sends many messages of growing size one way, and prints how many bytes and "
                       "messages a second arrive.",
            .counted = "messages",
            .first_size = 1,
            .last_size = 4u << 20,
            .has_window = 1,
        },
    .kind = PLAN_STREAM,
    .count = count,
    .repeat = repeat,
    .heading = heading,
    .row = row,
};

int main(int argc, char **argv)
{
    return measure_main(&STREAM, argc, argv);
}
