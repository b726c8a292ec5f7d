/*
 * Messages of every class, moments of their lives, and what may become of the peer: the frame of
 * the tests that cancel (cancel_moments.c), with the side that does not.
 *
 *     a round:  canceller ── each row's message ──► peer       (or the other way: RECV)
 *                         cancels
 *               canceller ── each row's closing message ──► peer
 *
 * The closing message has the row's tag, so it comes behind the first one: what the receiver gets up
 * to it is what became of that.
 *
 * Knows nothing of: cancelling, who stops or kills.
 */
#ifndef C_TESTS_MOMENTS_H
#define C_TESTS_MOMENTS_H

#include "host.h"
#include "op.h"
#include "world.h"

enum verb { SEND, RECV, UNEXPECTED };

struct row {
    enum verb verb; /* as the canceller sees it */
    bmi_size_t size;
    bmi_size_t piece; /* > 0: a list, of pieces from this size on */
};

enum {
    ROWS = 12,
    LARGEST = 3 * 1024 * 1024,
    CLOSING = 77, /* bytes of a closing message: no row has that size */
    FILLING_MAX = 32 * 1024,
    FILLINGS_MAX = 12000, /* a peer may leave 8200 credits of messages here */
    /* Tags: 16 for each round, and these. */
    TAG_FILLING = 0x7f11,
    TAG_MARKER = 0x7f12,
    TAG_HELLO = 0x7f13,
    TAG_ROUNDS = 0x10000,
};

extern const struct row rows[ROWS];
/* CLOSING bytes. */
extern const char closing[];

enum moment { UNCONNECTED, NO_CREDIT, NO_BYTES, UNMATCHED, MATCHED, COMPLETE, REPORTED };
enum fate { ALIVE, STOPPED, DEAD };
extern const char *const moments[], *const fates[];

struct round {
    enum moment moment;
    enum fate fate;
    int number; /* from 1 */
};

/* A round as a note's value. */
int64_t round_word(struct round round);
struct round round_of(int64_t word);

/* Of one row's messages in one round: their tag, and the pattern they are filled with. */
bmi_msg_tag_t tag_of(struct round round, int row);
uint64_t seed_of(struct round round, int row);
/* The size of messages sent before, which are not received, until the peer takes no more of them
 * (empty ones) or no more bytes: then what is posted stays queued, or is offered. -1: none. */
bmi_size_t filling_of(struct round round);
/* Does the peer post counterparts of the rows in this round? */
bool is_answered(struct round round);

/* Posts a row's message, or a receive for it with room for `size` bytes. */
void post_row(struct op *op, struct bmi_method_addr *peer, enum verb verb, int row, void *bytes,
              bmi_size_t size, bmi_msg_tag_t tag);
/* Sends its closing message. */
void close_row(struct op *op, struct bmi_method_addr *peer, struct round round, int row);
/* Receives what comes of a row up to its closing message, and returns how often its own message was
 * among it, whole. `first`, with memory at `bytes`, may be a receive that is posted already. */
int receive_rest(struct bmi_method_addr *peer, struct round round, int row, struct op *first,
                 char *bytes);

/* The side that does not cancel, a server. What the director tells it and hears:
 *
 *     ──► endpoint N (0: any)           ◄── endpoint N
 *     ──► round R, is new B             ◄── posted, marked      (by moment; not when it is new: the
 *                                                               successor of one that was killed)
 *     ──► finish, results               ◄── over
 *     ──► round 0
 *
 * `results`: a bit for each row that succeeded at the canceller; from bit 32 on how many fillings. */
void moments_peer(struct side *side);

#endif
