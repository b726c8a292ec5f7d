/*
 * cancel of every class of message, on both sides, at every moment, whatever became of the peer.
 *
 *     message            moment                          the peer
 *     zero, small,       queued, no connection           alive
 *     32 KiB, large,     queued, the peer takes no more  stopped (SIGSTOP)
 *     large list;        offered, no room for bytes      dead (kill -9)
 *                        there, but not matched
 *     unexpected         matched, at some point or other
 *                        complete, not reported
 *                        reported
 *
 * A round is one moment and one fate of the peer, for all messages at once (`rows`). Each operation
 * has exactly one completion, which the next testcontext(0) has, and from then on no code touches its
 * buffer: the pages are taken away until the round is over. Then a closing message with each row's
 * tag shows what the other side got of the first one: all of it or nothing, never a part, never
 * something that was withdrawn; and that the peer, or its successor, still works.
 *
 *     director ── conducts ──► canceller (client)      posts, cancels
 *              ── stops, kills, restarts ──► peer (server)   posts the counterparts
 *
 * The seed is printed; C_TESTS_SEED=number repeats it, as far as timing can be repeated.
 */
#include "../support/guard.h"
#include "../support/moments.h"
#include "../support/pair.h"
#include "../support/pattern.h"
#include "../support/port.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- numbers that only look random ---- */

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = state;

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (x ^ (x >> 31)) % below;
}

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* ---- the canceller ---- */

static struct bmi_method_addr *server;
static int server_endpoint;
static struct room rooms[ROWS], filling_room;
static struct op row_op[ROWS], filling_op[FILLINGS_MAX];
static int fillings;

static struct {
    int64_t *ns; /* how long each cancel took, until its completion was in hand */
    int count, room;
    int64_t longest;
    char which[64];
    int cancelled[REPORTED + 1][DEAD + 1], finished[REPORTED + 1][DEAD + 1];
} tally;

static void note_time(int64_t ns, struct round round, int row)
{
    if (tally.count == tally.room) {
        tally.room = tally.room == 0 ? 1024 : 2 * tally.room;
        tally.ns = realloc(tally.ns, (size_t)tally.room * sizeof *tally.ns);
        CHECK(tally.ns != NULL);
    }
    tally.ns[tally.count++] = ns;
    if (ns > tally.longest) {
        tally.longest = ns;
        snprintf(tally.which, sizeof tally.which, "%s, peer %s, row %d", moments[round.moment],
                 fates[round.fate], row);
    }
}

/* cancel, and its completion is there: not soon, but in the next call. */
static void cancel(struct op *op, struct round round, int row)
{
    int64_t begin = now_ns();

    CHECK_THAT(ops->cancel(op->id, op->context), ==, 0);
    host_testcontext(64, op->context, 0);
    if (!op_done(op))
        FAIL("cancelled, and not complete in the next testcontext");
    note_time(now_ns() - begin, round, row);
}

static bool hello(void)
{
    struct op receive = {0}, send = {0};
    char answer[CLOSING];

    if (op_recv(&receive, server, answer, CLOSING, TAG_HELLO) < 0)
        return false;
    if (op_send_unexpected(&send, server, closing, CLOSING, TAG_HELLO) >= 0)
        op_wait(&send);
    if ((send.posted < 0 || send.error != 0) && !op_done(&receive))
        CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
    op_wait(&receive);
    return receive.error == 0;
}

/* Until a peer answers: the first attempts may still go to the dead one. */
static void greet(void)
{
    for (deadline_t deadline = deadline_in(WAIT_MS); !hello();) {
        CHECK(!deadline_over(deadline));
        host_pump(5);
    }
}

static void look_up_again(void)
{
    host_drop(server);
    server = host_lookup_endpoint(server_endpoint);
}

static void begin_row(struct round round, int row)
{
    room_lend(&rooms[row]);
    memset(&row_op[row], 0, sizeof row_op[row]);
    /* Context 1 is not tested: there, what is complete is not reported. */
    row_op[row].context = round.moment == COMPLETE ? 1 : 0;
    if (rows[row].verb != RECV)
        fill(rooms[row].bytes, (size_t)rows[row].size, seed_of(round, row));
    post_row(&row_op[row], server, rows[row].verb, row, rooms[row].bytes, rows[row].size,
             tag_of(round, row));
    /* That the peer is gone may be known at once. Then nothing is ever reported. */
    CHECK(row_op[row].posted >= 0 || round.fate == DEAD);
}

static int fillings_done(int from)
{
    int done = 0;

    for (int i = from; i < fillings; i++)
        done += op_done(&filling_op[i]);
    return done;
}

/* Sends without receives, until the last twelve of them wait: the peer lends more for the asking, a
* little later. */
static void fill_up(bmi_size_t size)
{
    fillings = 0;
    room_lend(&filling_room);
    fill(filling_room.bytes, FILLING_MAX, TAG_FILLING);
    for (int in_vain = 0; in_vain < 3; in_vain++) {
        int first = fillings;

        while (fillings < first + 4) {
            struct op *op = &filling_op[fillings];

            if (fillings++ == FILLINGS_MAX)
                FAIL("%d messages without receives, and still room", FILLINGS_MAX);
            memset(op, 0, sizeof *op);
            CHECK_THAT(op_send(op, server, filling_room.bytes, size, TAG_FILLING), >=, 0);
        }
        for (int pumps = 0; pumps < 20 && fillings_done(first) == 0; pumps++)
            host_pump(1);
        if (fillings_done(first) > 0)
            in_vain = -1;
    }
}

/* The number that the peer has or will have. */
static int64_t take_back_fillings(struct round round)
{
    int64_t sent = 0;

    for (int i = fillings - 1; i >= 0; i--) {
        if (!op_done(&filling_op[i]))
            cancel(&filling_op[i], round, ROWS);
        CHECK_THAT(atomic_load(&filling_op[i].completions), ==, 1);
        sent += filling_op[i].error == 0;
    }
    fillings = 0;
    room_take_away(&filling_room);
    return sent;
}

static void some_time(void)
{
    int64_t until = now_ns() + (int64_t)draw(UINT64_C(1000) << draw(12));
    bool busy = draw(4) != 0;

    do {
        if (busy)
            host_pump(0);
    } while (now_ns() < until);
}

/* Everything up to the cancel. */
static void set_scene(struct side *side, struct round round)
{
    bool early = draw(2) == 0; /* is it known that there are counterparts? */
    struct op marker = {0};

    switch (round.moment) {
    case UNCONNECTED:
        /* The peer hears of it, so that nothing is left of the connection. */
        look_up_again();
        tell(side, "ready", 0);
        hear(side, "now");
        for (int row = 0; row < ROWS; row++)
            begin_row(round, row);
        return;
    case NO_CREDIT:
    case NO_BYTES:
        tell(side, "before", 0);
        hear(side, "fill");
        fill_up(filling_of(round));
        for (int row = 0; row < ROWS; row++)
            begin_row(round, row);
        break;
    case UNMATCHED:
        for (int row = 0; row < ROWS; row++)
            begin_row(round, row);
        /* Comes behind them all. */
        CHECK_THAT(op_send(&marker, server, NULL, 0, TAG_MARKER), >=, 0);
        op_sent(&marker);
        break;
    case MATCHED:
        if (early)
            pair_hear(side, "posted");
        for (int row = 0; row < ROWS; row++)
            begin_row(round, row);
        if (!early)
            pair_hear(side, "posted");
        some_time();
        if (round.fate == ALIVE)
            return;
        break;
    default:
        for (int row = 0; row < ROWS; row++)
            begin_row(round, row);
        CHECK_THAT(op_recv(&marker, server, NULL, 0, TAG_MARKER), >=, 0);
        op_received(&marker, 0);
        for (int row = 0; row < ROWS && round.moment == REPORTED; row++)
            op_sent(&row_op[row]);
        break;
    }
    tell(side, "ready", 0);
    hear(side, "now"); /* without a call to the library */
}

/* Is there only one thing that can come of it? */
static bool is_certain(struct round round, int row, int *error)
{
    bool large = rows[row].size > 32 * 1024;

    *error = round.moment >= COMPLETE ? 0 : -BMI_ECANCEL;
    switch (round.moment) {
    case UNCONNECTED:
        return round.fate == STOPPED;
    case NO_CREDIT:
        return round.fate == STOPPED || (round.fate == ALIVE && rows[row].verb != UNEXPECTED);
    case NO_BYTES:
        large = rows[row].size >= FILLING_MAX;
        /* Fall through. */
    case UNMATCHED:
        return round.fate != DEAD && (rows[row].verb == RECV || (rows[row].verb == SEND && large));
    case MATCHED:
        return false;
    default:
        return true;
    }
}

static void check_row(struct round round, int row)
{
    const struct op *op = &row_op[row];
    int error;

    CHECK_THAT(atomic_load(&op->completions), ==, op->posted >= 0);
    if (op->error == 0 && rows[row].verb == RECV) {
        CHECK_THAT(op->size, ==, rows[row].size);
        check_filled(rooms[row].bytes, (size_t)op->size, seed_of(round, row));
    }
    room_take_away(&rooms[row]);
    if (op->error == -BMI_ECANCEL)
        tally.cancelled[round.moment][round.fate]++;
    else
        tally.finished[round.moment][round.fate]++;
    if (!is_certain(round, row, &error)) {
        if (round.fate == DEAD || op->error == 0 || op->error == -BMI_ECANCEL)
            return;
    } else if (op->error == error) {
        return;
    }
    FAIL("%s, %s, row %d ends with %s", moments[round.moment], fates[round.fate], row,
         code_text(op->error));
}

/* In random order; results as `finish` of the peer wants them. */
static int64_t cancel_rows(struct round round)
{
    int order[ROWS];
    int64_t results = 0;

    for (int row = 0; row < ROWS; row++) {
        int other = (int)draw((uint64_t)row + 1);

        order[row] = order[other];
        order[other] = row;
    }
    for (int i = 0; i < ROWS; i++) {
        struct op *op = &row_op[order[i]];

        if (op->posted == 0 && !op_done(op))
            cancel(op, round, order[i]);
        else if (op->posted == 0 && round.moment == REPORTED)
            /* The host may call all the same (docs/hosts.md, Calls); nothing comes of it. */
            (void)ops->cancel(op->id, op->context);
        check_row(round, order[i]);
        results |= (int64_t)(op->error == 0) << order[i];
        if (round.moment == MATCHED && round.fate == ALIVE && draw(3) == 0)
            some_time();
    }
    return results;
}

/* The end of a round, and proof that the peer works. */
static void wind_up(struct round round, int64_t results)
{
    struct op closings[ROWS] = {{0}};

    for (int row = 0; row < ROWS; row++)
        if (rows[row].verb != RECV)
            close_row(&closings[row], server, round, row);
    for (int row = 0; row < ROWS; row++) {
        bool succeeded = results >> row & 1;
        int originals;

        if (rows[row].verb != RECV) {
            op_sent(&closings[row]);
            continue;
        }
        originals = receive_rest(server, round, row, NULL, NULL);
        /* One that succeeded has had its message. */
        if (originals > (is_answered(round) && !succeeded && round.fate != DEAD))
            FAIL("%s, %s, row %d: its message comes again", moments[round.moment],
                 fates[round.fate], row);
    }
    for (int i = 0; i < 3; i++) {
        CHECK_THAT(host_testcontext(16, 0, 0), ==, 0);
        CHECK_THAT(host_testcontext(16, 1, 0), ==, 0);
    }
}

static int by_value(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return (a > b) - (a < b);
}

static void report(void)
{
    int64_t median;

    CHECK_THAT(tally.count, >, 0);
    qsort(tally.ns, (size_t)tally.count, sizeof *tally.ns, by_value);
    median = tally.ns[tally.count / 2];
    printf("cancel over %s: %d times, completion in hand after %lld.%lld us (median), "
           "%lld us (longest: %s)\n",
           port_name(), tally.count, (long long)median / 1000, (long long)median / 100 % 10,
           (long long)tally.longest / 1000, tally.which);
    for (int moment = 0; moment <= REPORTED; moment++) {
        printf("  %-12s", moments[moment]);
        for (int fate = 0; fate <= DEAD; fate++)
            printf("  %s: %d cancelled, %d ended otherwise;", fates[fate],
                   tally.cancelled[moment][fate], tally.finished[moment][fate]);
        printf("\n");
    }
    fflush(stdout);
    free(tally.ns);
}

static void canceller(struct side *side)
{
    int64_t word;

    state = (uint64_t)hear(side, "seed");
    server_endpoint = (int)hear(side, "endpoint");
    for (int row = 0; row < ROWS; row++)
        rooms[row] = room_for(rows[row].size);
    filling_room = room_for(FILLING_MAX);
    host_start_client();
    CHECK_THAT(ops->open_context(1), ==, 0);
    server = host_lookup_endpoint(server_endpoint);
    while ((word = pair_hear(side, "round")) != 0) {
        struct round round = round_of(word);
            int64_t results;

        set_scene(side, round);
        results = cancel_rows(round);
        if (filling_of(round) >= 0)
            results |= take_back_fillings(round) << 32;
        tell(side, "cancelled", results);
        pair_hear(side, "go on");
        /* Where it is noticed by silence, after a while, deaths.c waits for that. */
        if (round.fate == DEAD && death_is_silent())
            look_up_again();
        if (round.moment == UNCONNECTED || round.fate == DEAD)
            greet();
        wind_up(round, results);
        tell(side, "over", 0);
    }
    report();
    ops->close_context(1);
    host_stop();
}

/* ---- the director ---- */

struct cast {
    struct world *world;
    struct child *peer, *canceller;
    int64_t endpoint;
};

static void start_peer(struct cast *cast)
{
    cast->peer = spawn(cast->world, "peer");
    child_tell(cast->peer, "endpoint", cast->endpoint);
    cast->endpoint = child_hear(cast->peer, "endpoint");
}

static void announce(struct child *child, struct round round, bool is_new)
{
    child_tell(child, "round", round_word(round));
    child_tell(child, "is new", is_new);
}

static void conduct(struct cast *cast, struct round round)
{
    int64_t results;

    announce(cast->peer, round, false);
    child_tell(cast->canceller, "round", round_word(round));
    if (is_answered(round)) {
        child_hear(cast->peer, "posted");
        if (round.moment == MATCHED)
            child_tell(cast->canceller, "posted", 0);
    }
    if (filling_of(round) >= 0) {
        child_hear(cast->canceller, "before");
        if (round.fate != ALIVE)
            child_stop(cast->peer);
        child_tell(cast->canceller, "fill", 0);
    } else if (round.moment == UNMATCHED) {
        child_hear(cast->peer, "marked");
    }
    if (round.moment != MATCHED || round.fate != ALIVE) {
        child_hear(cast->canceller, "ready");
        if (round.fate == STOPPED && filling_of(round) < 0)
            child_stop(cast->peer);
        else if (round.fate == DEAD)
            child_kill(cast->peer);
        child_tell(cast->canceller, "now", 0);
    }
    results = child_hear(cast->canceller, "cancelled");
    if (round.fate == STOPPED)
        child_continue(cast->peer);
    if (round.fate == DEAD) {
        start_peer(cast);
        announce(cast->peer, round, true);
        results = 0; /* nothing of it is the successor's */
    }
    child_tell(cast->peer, "finish", results);
    child_tell(cast->canceller, "go on", 0);
    child_hear(cast->canceller, "over");
    child_hear(cast->peer, "over");
}

static uint64_t seed(void)
{
    const char *given = getenv("C_TESTS_SEED");

    return given != NULL ? strtoull(given, NULL, 0) : (uint64_t)now_ns();
}

static void conducts(struct world *world)
{
    /* The number of tries of each fate while messages are on their way. */
    const int often[] = {port_is("rdm") ? 12 : 60, port_is("rdm") ? 4 : 20, port_is("rdm") ? 2 : 6};
    struct cast cast = {.world = world};
    struct round round = {.number = 0};
    uint64_t number = seed();

    printf("C_TESTS_SEED=%llu\n", (unsigned long long)number);
    start_peer(&cast);
    cast.canceller = spawn(world, "canceller");
    child_tell(cast.canceller, "seed", (int64_t)number);
    child_tell(cast.canceller, "endpoint", cast.endpoint);
    for (int fate = 0; fate <= DEAD; fate++) {
        for (int moment = 0; moment <= REPORTED; moment++) {
            int times = moment == MATCHED ? often[fate] : 1;
            deadline_t enough = deadline_in(2000); /* for a slow machine */

            for (int i = 0; i < times && (i < 2 || !deadline_over(enough)); i++) {
                round.moment = (enum moment)moment;
                round.fate = (enum fate)fate;
                round.number++;
                conduct(&cast, round);
            }
        }
    }
    child_tell(cast.canceller, "round", 0);
    child_end(cast.canceller);
    child_tell(cast.peer, "round", 0);
    child_end(cast.peer);
}

static const struct scenario scenarios[] = {
    DIRECTED(whatever_is_cancelled_whenever_is_reported_by_the_next_call_and_let_go, conducts,
             {"peer", moments_peer}, {"canceller", canceller}),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
