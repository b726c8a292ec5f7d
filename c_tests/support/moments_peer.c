/* See moments.h: the side that does not cancel. It posts counterparts, and receives what is left. */
#include "moments.h"

#include <stdlib.h>
#include <string.h>

#include "pair.h"
#include "pattern.h"

/* Checks the peer's share of a message against the canceller's result. */
static void check_originals(struct round round, int row, int originals, bool succeeded)
{
    /* Withdrawn in time, or lost with the dead. An unexpected message needs no counterpart. */
    bool unsent = round.fate == STOPPED && round.moment <= NO_CREDIT;
    bool never = round.fate == DEAD || (!is_answered(round) && !succeeded &&
                                        (rows[row].verb != UNEXPECTED || unsent));

    if (originals < (succeeded && round.fate != DEAD) || originals > !never)
        FAIL("%s, %s, row %d: %d messages came of one that %s", moments[round.moment],
             fates[round.fate], row, originals, succeeded ? "succeeded" : "was cancelled");
}

static struct bmi_method_addr *client;
static bool greeted;
static int unexpected_seen[ROWS], unexpected_closed[ROWS];

/* Greetings of the canceller, and unexpected rows. */
static void look_at(struct round round, struct arrival *arrival)
{
    int row = arrival->tag - tag_of(round, 0);

    client = arrival->from;
    if (arrival->tag == TAG_HELLO) {
        struct op reply = {0};

        CHECK_THAT(op_send(&reply, client, closing, CLOSING, TAG_HELLO), >=, 0);
        op_sent(&reply);
        greeted = true;
    } else {
        CHECK(row >= 0 && row < ROWS && rows[row].verb == UNEXPECTED);
        if (arrival->size == CLOSING) {
            unexpected_closed[row]++;
        } else {
            CHECK_THAT(arrival->size, ==, rows[row].size);
            check_filled(arrival->buffer, (size_t)arrival->size, seed_of(round, row));
            unexpected_seen[row]++;
        }
    }
    arrival_free(arrival);
}

static void receive_marker(void)
{
    struct op marker = {0};

    CHECK_THAT(op_recv(&marker, client, NULL, 0, TAG_MARKER), >=, 0);
    op_received(&marker, 0);
}

static struct op counterpart[ROWS];
static char *counterpart_bytes[ROWS];

static void post_counterparts(struct round round)
{
    for (int row = 0; row < ROWS; row++) {
        bmi_size_t size = rows[row].size > CLOSING ? rows[row].size : CLOSING;

        memset(&counterpart[row], 0, sizeof counterpart[row]);
        if (rows[row].verb == SEND) {
            post_row(&counterpart[row], client, RECV, row, counterpart_bytes[row], size,
                     tag_of(round, row));
        } else if (rows[row].verb == RECV) {
            fill(counterpart_bytes[row], (size_t)rows[row].size, seed_of(round, row));
            post_row(&counterpart[row], client, SEND, row, counterpart_bytes[row], rows[row].size,
                     tag_of(round, row));
        }
        CHECK_THAT(counterpart[row].posted, >=, 0);
    }
}

static void look_at_next(struct round round)
{
    struct arrival arrival = host_next();

    look_at(round, &arrival);
}

static void wait_counterparts(struct round round)
{
    for (int row = 0; row < ROWS; row++) {
        if (rows[row].verb != UNEXPECTED)
            op_sent(&counterpart[row]);
        while (rows[row].verb == UNEXPECTED && unexpected_seen[row] == 0)
            look_at_next(round);
    }
}

/* `results`: a bit for each row that succeeded on the other side, then how many fillings. */
static void finish(struct round round, int64_t results)
{
    static char room[FILLING_MAX];
    static struct op filling[FILLINGS_MAX];
    struct op closings[ROWS] = {{0}};
    int fillings = (int)(results >> 32);

    while (!greeted)
        look_at_next(round);
    for (int row = 0; row < ROWS; row++)
        if (rows[row].verb == RECV)
            close_row(&closings[row], client, round, row);
    for (int i = 0; i < fillings; i++) {
        memset(&filling[i], 0, sizeof filling[i]);
        CHECK_THAT(op_recv(&filling[i], client, room, FILLING_MAX, TAG_FILLING), >=, 0);
    }
    for (int i = 0; i < fillings; i++) {
        op_received(&filling[i], filling_of(round));
        check_filled(room, (size_t)filling_of(round), TAG_FILLING);
    }
    for (int row = 0; row < ROWS; row++) {
        bool succeeded = results >> row & 1, posted = is_answered(round) && round.fate != DEAD;
        int originals = 0;

        if (rows[row].verb == SEND)
            originals = receive_rest(client, round, row, posted ? &counterpart[row] : NULL,
                                     counterpart_bytes[row]);
        else if (rows[row].verb == UNEXPECTED) {
            while (unexpected_closed[row] == 0)
                look_at_next(round);
            originals = unexpected_seen[row];
            unexpected_closed[row] = unexpected_seen[row] = 0;
        } else {
            op_sent(&closings[row]);
            if (posted) {
                /* An error where the receive was cancelled while it was being filled. */
                op_wait(&counterpart[row]);
                CHECK(counterpart[row].error == 0 || !succeeded);
            }
            continue;
        }
        check_originals(round, row, originals, succeeded);
    }
}

void moments_peer(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");
    int64_t word;

    for (int row = 0; row < ROWS; row++)
        counterpart_bytes[row] = malloc(LARGEST);
    if (endpoint == 0) {
        endpoint = host_start_server();
    } else { /* the successor of a dead one */
        CHECK_THAT(host_try_server(endpoint), ==, 0);
        CHECK_THAT(ops->open_context(0), ==, 0);
    }
    tell(side, "endpoint", endpoint);
    while ((word = pair_hear(side, "round")) != 0) {
        struct round round = round_of(word);
        bool is_new = pair_hear(side, "is new") != 0;

        /* The connection of before is over: the canceller will say hello. */
        if (round.moment == UNCONNECTED)
            greeted = false;
        while (!greeted && round.moment != UNCONNECTED && !is_new)
            look_at_next(round);
        if (!is_new && is_answered(round)) {
            post_counterparts(round);
            tell(side, "posted", 0);
            if (round.moment != MATCHED) {
                struct op marker = {0};

                wait_counterparts(round);
                CHECK_THAT(op_send(&marker, client, NULL, 0, TAG_MARKER), >=, 0);
                op_sent(&marker);
            }
        } else if (!is_new && round.moment == UNMATCHED) {
            receive_marker();
            tell(side, "marked", 0);
        }
        finish(round, pair_hear(side, "finish"));
        tell(side, "over", 0);
    }
    for (int row = 0; row < ROWS; row++)
        free(counterpart_bytes[row]);
    host_stop();
}
