/* See moments.h. */
#include "moments.h"

#include <string.h>

#include "pattern.h"

#define KIB 1024
#define MIB (1024 * 1024)

const struct row rows[ROWS] = {
    {SEND, 0, 0},           {SEND, 900, 0},          {SEND, 32 * KIB, 0},
    {SEND, 3 * MIB, 0},     {SEND, 2 * MIB, 10000},  {RECV, 0, 0},
    {RECV, 900, 0},         {RECV, 32 * KIB, 0},     {RECV, 3 * MIB, 0},
    {RECV, 2 * MIB, 10000}, {UNEXPECTED, 700, 0},    {UNEXPECTED, 300 * KIB, 0},
};

const char closing[] =
    "whatever came before this with the same tag is all that will ever come of it";
_Static_assert(sizeof closing == CLOSING, "the size of a closing message");

const char *const moments[] = {"unconnected", "no credit", "no bytes", "unmatched",
                               "matched",     "complete",  "reported"};
const char *const fates[] = {"alive", "stopped", "dead"};

int64_t round_word(struct round round)
{
    return (int64_t)round.number << 16 | (int64_t)round.moment << 8 | (int64_t)round.fate;
}

struct round round_of(int64_t word)
{
    struct round round = {.moment = (enum moment)(word >> 8 & 0xff),
                          .fate = (enum fate)(word & 0xff),
                          .number = (int)(word >> 16)};

    return round;
}

bmi_msg_tag_t tag_of(struct round round, int row)
{
    return TAG_ROUNDS + round.number * 16 + row;
}

uint64_t seed_of(struct round round, int row)
{
    return (uint64_t)tag_of(round, row);
}
bmi_size_t filling_of(struct round round)
{
    return round.moment == NO_CREDIT ? 0 : round.moment == NO_BYTES ? FILLING_MAX : -1;
}

bool is_answered(struct round round)
{
    return round.moment >= MATCHED;
}

void post_row(struct op *op, struct bmi_method_addr *peer, enum verb verb, int row, void *bytes,
              bmi_size_t size, bmi_msg_tag_t tag)
{
    if (rows[row].piece > 0 && size == rows[row].size) {
        struct cut cut = cut_up(bytes, size, rows[row].piece, 1000, 3);

        if (verb == SEND)
            op_send_cut(op, peer, &cut, tag);
        else if (verb == UNEXPECTED)
            op_send_unexpected_cut(op, peer, &cut, tag);
        else
            op_recv_cut(op, peer, &cut, tag);
        cut_free(&cut);
    } else if (verb == SEND) {
        op_send(op, peer, bytes, size, tag);
    } else if (verb == UNEXPECTED) {
        op_send_unexpected(op, peer, bytes, size, tag);
    } else {
        op_recv(op, peer, bytes, size, tag);
    }
}
void close_row(struct op *op, struct bmi_method_addr *peer, struct round round, int row)
{
    enum verb verb = rows[row].verb == UNEXPECTED ? UNEXPECTED : SEND;

    post_row(op, peer, verb, row, (void *)(uintptr_t)closing, CLOSING, tag_of(round, row));
    CHECK_THAT(op->posted, >=, 0);
}

int receive_rest(struct bmi_method_addr *peer, struct round round, int row, struct op *first,
                 char *first_bytes)
{
    static char bytes[LARGEST];
    bmi_size_t size = rows[row].size > CLOSING ? rows[row].size : CLOSING;
    int originals = 0;

    for (struct op again;; first = NULL) {
        struct op *op = first;
        char *in = first_bytes;

        if (op == NULL) {
            memset(&again, 0, sizeof again);
            op = &again;
            in = bytes;
            CHECK_THAT(op_recv(op, peer, in, size, tag_of(round, row)), >=, 0);
        }
        op_wait(op);
        CHECK_THAT(op->error, ==, 0);
        if (op->size == CLOSING) {
            CHECK(memcmp(in, closing, CLOSING) == 0);
            return originals;
        }
        CHECK_THAT(op->size, ==, rows[row].size);
        check_filled(in, (size_t)op->size, seed_of(round, row));
        originals++;
    }
}
