/*
 * Exchanges that a lost connection has cut: what a host posts for them ends, and never waits for a
 * peer that has forgotten them.
 *
 *      client                                server
 *      request, receive of the answer  ───►
 *      stopped                               the answer; its other operations time out:
 *                                            the client is given up
 *      goes on, has the answer
 *      [the loss is noticed]
 *      a strip, the receive of its
 *      acknowledgement: both end
 *      hello                           ◄──►  works
 */
#include "../support/pair.h"
#include "../support/pattern.h"
#include "../support/port.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TIMEOUT_MS = 1000,
    SLACK_MS = 8000,  /* what a busy machine may add */
    NOTICED_MS = 300, /* by then a living process has noticed the loss */
    STRIP = 256 * 1024,
    TAG_ASK = 1,
    TAG_STRIP = 2,
    TAG_ACK = 3,
};

static const char answer[] = "answer";

static void gives_up(struct side *side)
{
    struct bmi_method_addr *client;
    struct op reply = {0}, strip = {0};
    struct arrival request;
    char *in = fenced(STRIP);
    pid_t pid;

    set_ms("BMI_MX_PEER_TIMEOUT_MS", TIMEOUT_MS);
    client = pair_server(side);
    request = host_next();
    CHECK(request.from == client);
    CHECK_THAT(request.tag, ==, TAG_ASK);
    arrival_free(&request);
    pid = hear_stopped(side);
    CHECK_THAT(op_send(&reply, client, answer, sizeof answer, TAG_ASK), >=, 0);
    CHECK_THAT(op_recv(&strip, client, in, STRIP, TAG_STRIP), ==, 0);
    op_wait(&strip);
    op_failed(&strip, BMI_ETIMEDOUT);
    fenced_free(in);
    CHECK_THAT(kill(pid, SIGCONT), ==, 0);
    while (!heard_anything(side)) {
        struct arrival arrival;
        struct op echo = {0};

        if (!host_next_within(&arrival, 10))
            continue;
        if (op_send(&echo, arrival.from, arrival.buffer, arrival.size, arrival.tag) >= 0)
            op_wait(&echo);
        arrival_free(&arrival);
    }
    hear(side, "enough");
    pair_part(side);
}

static void pump_for(int ms)
{
    for (deadline_t deadline = deadline_in(ms); !deadline_over(deadline);)
        host_pump(2);
}

/* Ends with an error, in the time that is left. */
static void ends(struct op *op, const char *what, deadline_t deadline)
{
    if (op->posted < 0)
        return;
    while (!op_done(op)) {
        if (deadline_over(deadline))
            FAIL("the %s of an exchange that was cut never ends", what);
        host_pump(2);
    }
    CHECK_THAT(op->error, <, 0);
}

/* Asks, and is stopped until the server has given it up; has the answer when it returns. */
static struct bmi_method_addr *asks_and_is_given_up(struct side *side)
{
    struct op request = {0}, reply = {0};
    struct bmi_method_addr *server;
    char in[64];

    set_ms("BMI_MX_PEER_TIMEOUT_MS", TIMEOUT_MS);
    server = pair_client(side);
    CHECK_THAT(op_recv(&reply, server, in, sizeof in, TAG_ASK), ==, 0);
    CHECK_THAT(op_send_unexpected(&request, server, "ask", 4, TAG_ASK), >=, 0);
    op_sent(&request);
    stop_here(side);
    op_wait(&reply);
    printf("    the answer ended with %d\n", reply.error);
    return server;
}

static void goes_on(struct side *side, int pause_ms, bool ack_first)
{
    struct op strip = {0}, ack = {0};
    struct bmi_method_addr *server;
    char *out = malloc(STRIP), *room = fenced(STRIP);
    deadline_t deadline;

    CHECK(out != NULL);
    fill(out, STRIP, 1);
    server = asks_and_is_given_up(side);
    pump_for(pause_ms);
    deadline = deadline_in(2 * TIMEOUT_MS + SLACK_MS * slower());
    if (ack_first)
        CHECK_THAT(op_recv(&ack, server, room, STRIP, TAG_ACK), >=, 0);
    op_send(&strip, server, out, STRIP, TAG_STRIP);
    if (!ack_first)
        CHECK_THAT(op_recv(&ack, server, room, STRIP, TAG_ACK), >=, 0);
    ends(&strip, "send", deadline);
    ends(&ack, "receive", deadline);
    /* They are not looked at any more. */
    fill(out, STRIP, 2);
    fenced_free(room);
    deadline = deadline_in(WAIT_MS);
    while (!pair_try_hello(server))
        CHECK(!deadline_over(deadline));
    check_filled(out, STRIP, 2);
    free(out);
    tell(side, "enough", 0);
    pair_part(side);
}

static void goes_on_at_once(struct side *side)
{
    goes_on(side, 0, false);
}

static void goes_on_later(struct side *side)
{
    goes_on(side, NOTICED_MS, false);
}

static void waits_first(struct side *side)
{
    goes_on(side, NOTICED_MS, true);
}

/* A receive for which nothing is sent, and no request made. */
static void only_waits(struct side *side)
{
    struct op ack = {0};
    struct bmi_method_addr *server = asks_and_is_given_up(side);
    char room[64];

    pump_for(NOTICED_MS);
    CHECK_THAT(op_recv(&ack, server, room, sizeof room, TAG_ACK), >=, 0);
    ends(&ack, "receive", deadline_in(2 * TIMEOUT_MS + SLACK_MS * slower()));
    tell(side, "enough", 0);
    pair_part(side);
}

static const struct scenario scenarios[] = {
    PAIR(operations_of_a_cut_exchange_end_when_they_are_posted_at_once, gives_up, goes_on_at_once),
    PAIR(operations_of_a_cut_exchange_end_when_the_loss_was_noticed, gives_up, goes_on_later),
    PAIR(a_receive_posted_first_ends_with_its_exchange, gives_up, waits_first),
    PAIR(a_receive_alone_ends_after_the_peer_timeout, gives_up, only_waits),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
