/* See exchange.h. */
#include "exchange.h"

#include <stdlib.h>
#include <string.h>

#include "pattern.h"

enum {
    REQUEST_BYTES = 200,
    DATA_BYTES = 2 * 1024 * 1024,
    ANSWER_BYTES = 32,
    SERVED = 16,
};

/* ---- clients ---- */

void exchanges_begin(struct exchanges *all, struct bmi_method_addr *server)
{
    static char request[REQUEST_BYTES], answers[EXCHANGES][ANSWER_BYTES], *data;
    static bmi_msg_tag_t tag = 1000;

    memset(all, 0, sizeof *all);
    if (data == NULL) {
        data = malloc(DATA_BYTES);
        CHECK(data != NULL);
        fill(data, DATA_BYTES, 1);
    }
    for (int i = 0; i < EXCHANGES; i++, tag++) {
        op_recv(&all->answer[i], server, answers[i], ANSWER_BYTES, tag);
        op_send_unexpected(&all->request[i], server, request, REQUEST_BYTES, tag);
        op_send(&all->data[i], server, data, DATA_BYTES, tag);
    }
}

static bool is_over(const struct op *op)
{
    return op->posted < 0 || op_done(op);
}

static bool are_over(const struct exchanges *all)
{
    for (int i = 0; i < EXCHANGES; i++)
        if (!is_over(&all->answer[i]) || !is_over(&all->request[i]) || !is_over(&all->data[i]))
            return false;
    return true;
}

static bool has_failed(const struct op *op)
{
    return op->posted >= 0 && op->error < 0;
}

/* The last one of these to be told of, or of those before. */
static int last_told(const struct op *op, int last, const char *what)
{
    if (!has_failed(op))
        return last;
    if (op->turn < last)
        FAIL("a failed %s is told too late (%s)", what, code_text(op->error));
    return op->turn;
}

bool exchanges_end(struct exchanges *all, int incount, int ms)
{
    deadline_t deadline = deadline_in(ms);
    bool well = true;
    int told = 0;

    while (!are_over(all)) {
        if (deadline_over(deadline))
            FAIL("exchanges do not end");
        host_testunexpected(4, 0);
        host_testcontext(incount, 0, 5);
    }
    for (int i = 0; i < EXCHANGES; i++) {
        told = last_told(&all->request[i], told, "request");
        told = last_told(&all->data[i], told, "send of data");
        well = well && all->request[i].error == 0 && all->data[i].error == 0;
    }
    for (int i = 0; i < EXCHANGES; i++) {
        told = last_told(&all->answer[i], told, "receive");
        well = well && all->answer[i].error == 0;
    }
    return well;
}

void exchanges_all_failed(const struct exchanges *all)
{
    for (int i = 0; i < EXCHANGES; i++) {
        CHECK(has_failed(&all->answer[i]));
        CHECK(has_failed(&all->data[i]));
    }
}

/* Begins them again and again, until they go well; returns how often they did not. */
static int exchanges_retry(struct bmi_method_addr *server, int incount, int ms)
{
    deadline_t deadline = deadline_in(ms);
    struct exchanges again;

    for (int failed = 0;; failed++) {
        exchanges_begin(&again, server);
        if (exchanges_end(&again, incount, deadline_left(deadline)))
            return failed;
        CHECK(!deadline_over(deadline));
        pause_ms(20);
    }
}

void exchanges_lose_servers(struct side *side, struct bmi_method_addr *server, int incount)
{
    struct exchanges all;

    for (;;) {
        tell(side, "well", exchanges_retry(server, incount, 2 * WAIT_MS));
        if (hear(side, "go on") == 0)
            break;
        exchanges_begin(&all, server);
        tell(side, "begun", 0);
        hear(side, "killed");
        CHECK(!exchanges_end(&all, incount, WAIT_MS));
        exchanges_all_failed(&all);
        tell(side, "failed", 0);
    }
}

/* ---- servers ---- */

struct served {
    struct bmi_method_addr *from;
    bmi_msg_tag_t tag;
    struct op data, answer;
    char *room; /* NULL: none is served here */
    bool answered;
};

static void serve(struct served *one, const struct arrival *request)
{
    memset(one, 0, sizeof *one);
    one->from = request->from;
    one->tag = request->tag;
    one->room = malloc(DATA_BYTES);
    CHECK(one->room != NULL);
    op_recv(&one->data, one->from, one->room, DATA_BYTES, one->tag);
}

/* Goes on as far as it can. */
static void go_on(struct served *one)
{
    if (!is_over(&one->data) || (one->answered && !is_over(&one->answer)))
        return;
    if (one->answered || one->data.posted < 0 || one->data.error != 0) {
        free(one->room);
        one->room = NULL;
        return;
    }
    check_filled(one->room, DATA_BYTES, 1);
    one->answered = true;
    op_send(&one->answer, one->from, "done", 4, one->tag);
}

void exchanges_serve(struct side *side)
{
    static struct served all[SERVED];

    while (!heard_anything(side)) {
        struct served *room = NULL;
        struct arrival arrival;

        for (int i = 0; i < SERVED; i++) {
            if (all[i].room != NULL)
                go_on(&all[i]);
            if (all[i].room == NULL)
                room = &all[i];
        }
        if (room == NULL) {
            host_testcontext(SERVED, 0, 5);
        } else if (host_next_within(&arrival, 5)) {
            serve(room, &arrival);
            arrival_free(&arrival);
        }
    }
}
