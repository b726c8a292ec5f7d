/*
 * Messages between the sides over bad links: all are checked, and their times measured.
 *
 *      talk      messages of all sizes both ways at once, expected and unexpected, in rounds
 *      pings     one small message there and back, again and again
 *      stream    large messages one way, as fast as possible, until a time is over
 *                outflow, the sender ──────► inflow, one for each sender
 *
 * Every round uses the same tags with other contents: a message that came twice, or belongs to an earlier round,
 * would be found in the place of a later one.
 *
 * Owns: its buffers. Knows nothing of: networks, roles.
 */
#ifndef C_TESTS_TRAFFIC_H
#define C_TESTS_TRAFFIC_H

#include "host.h"
#include "op.h"

/* ---- talk ---- */

enum { TALK_SIZES = 14, TALK_UNEXPECTED = 40 };

/* A talk with one peer. */
struct talk {
    struct bmi_method_addr *peer;
    int64_t me, you;      /* numbers that make contents differ */
    int sizes;            /* number of sizes in use */
    int64_t round;
    bool leads;           /* sends the unexpected messages */
    int64_t unexpected;   /* unexpected messages received so far */
    int64_t words[TALK_UNEXPECTED][2];
    char *in[TALK_SIZES], *out[TALK_SIZES];
    struct op receive[TALK_SIZES], send[TALK_SIZES], call[TALK_UNEXPECTED];
};

/* Begins with messages of up to `largest` bytes. */
void talk_begin(struct talk *talk, struct bmi_method_addr *peer, int64_t me, int64_t you,
                bool leads, int64_t largest);
/* Runs one round with each of these peers at the same time. Fails if it does not end in time. */
void talk_round(struct talk *talks, int count, deadline_t deadline);
void talk_end(struct talk *talk);
/* Runs that many rounds with one peer. */
void talk_rounds(struct bmi_method_addr *peer, bool leads, int64_t largest, int rounds, deadline_t deadline);

/* ---- pings ---- */

struct pings {
    int64_t median_us, worst_us;
};

struct pings ping(struct bmi_method_addr *peer, int count, deadline_t deadline);
void pong(struct bmi_method_addr *peer, int count, deadline_t deadline);

/* ---- streams ---- */

enum { STREAM_AHEAD = 4 };

struct inflow {
    struct bmi_method_addr *peer;
    bmi_size_t size;
    int64_t number; /* number of the next message */
    int64_t more;   /* messages still to come, once the last one's number is known */
    int64_t bytes;  /* bytes of whole messages so far */
    bool ended;
    char *buffers[STREAM_AHEAD];
    struct op receives[STREAM_AHEAD];
};

/* Sends messages of `size` bytes for `ms`, and waits until all have been sent. */
void outflow(struct bmi_method_addr *peer, bmi_size_t size, int ms, deadline_t deadline);
void inflow_begin(struct inflow *flow, struct bmi_method_addr *peer, bmi_size_t size);
/* Takes what has arrived; false once the stream has ended. Never waits. */
bool inflow_step(struct inflow *flow);
void inflow_end(struct inflow *flow);
/* Receives a whole stream; returns bytes per second. */
double take_stream(struct bmi_method_addr *peer, bmi_size_t size, deadline_t deadline);

#endif
