/*
 * Messages: every size class, segments, masks, many before a receive, truncation, to others and to oneself. Out of
 * scope: order, completion other than by mx_wait.
 */
#include "support/party.h"

/* Sizes around everything that might be a limit: inline lines, the 32 KiB eager limit, ring slots, a whole ring,
 * messages that are pulled in pieces. */
static const size_t sizes[] = {0,     1,     7,     8,     24,     63,     64,      127,
                               128,   1000,  4096,  8193,  16384,  32767,  32768,   32769,
                               65535, 65536, 99991, 262144, 1 << 20, (1 << 20) + 3, 8 << 20};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* ---- every size ---- */

static void echo(struct side *side)
{
    struct pair pair = pair_open(side);

    for (int i = 0; i < SIZES; i++) {
        void *buffer = fenced(sizes[i]);
        mx_request_t request = receive(pair.ep, buffer, sizes[i], (uint64_t)i, EXACTLY);
        mx_status_t status = succeed(pair.ep, request, sizes[i]);

        CHECK_THAT(status.match_info, ==, i);
        CHECK(status.context == buffer);
        CHECK(same_address(status.source, pair.peer));
        check_filled(buffer, sizes[i], (uint64_t)i);
        request = send_to(pair.ep, pair.peer, buffer, sizes[i], (uint64_t)i);
        succeed(pair.ep, request, sizes[i]);
        fenced_free(buffer);
    }
    pair_close(&pair);
}

static void echoed(struct side *side)
{
    struct pair pair = pair_open(side);

    for (int i = 0; i < SIZES; i++) {
        void *out = fenced(sizes[i]), *in = fenced(sizes[i]);
        mx_request_t request;
        mx_status_t status;

        fill(out, sizes[i], (uint64_t)i);
        request = send_to(pair.ep, pair.peer, out, sizes[i], (uint64_t)i);
        status = succeed(pair.ep, request, sizes[i]);
        CHECK_THAT(status.match_info, ==, i);
        CHECK(status.context == out);
        CHECK(same_address(status.source, pair.peer)); /* the destination */
        memset(out, 0, sizes[i]); /* the buffer may be reused: the peer must not see this */
        request = receive(pair.ep, in, sizes[i], (uint64_t)i, EXACTLY);
        succeed(pair.ep, request, sizes[i]);
        check_filled(in, sizes[i], (uint64_t)i);
        fenced_free(out);
        fenced_free(in);
    }
    pair_close(&pair);
}

/* ---- segments ---- */

/* Cuts a buffer into up to 256 pieces, some of them empty. */
static uint32_t cut(mx_segment_t *list, char *buffer, size_t size, uint32_t pieces)
{
    size_t done = 0;

    for (uint32_t i = 0; i < pieces; i++) {
        size_t left = size - done, mean = left / (pieces - i);
        size_t length = i + 1 == pieces ? left : i % 3 == 2 ? 0 : mean + mean / 2;

        if (length > left)
            length = left;
        /* An empty piece may have any address. */
        list[i].segment_ptr = length == 0 && i % 2 == 0 ? NULL : buffer + done;
        list[i].segment_length = (uint32_t)length;
        done += length;
    }
    return pieces;
}

static const struct {
    size_t size;
    uint32_t out, in; /* pieces on each side */
} shapes[] = {
    {0, 0, 0},        {0, 5, 1},        {0, 256, 256},    {10, 3, 1},        {1000, 256, 7},
    {32768, 1, 256},  {32768, 256, 3},  {32769, 256, 255}, {500000, 2, 256}, {3000001, 256, 256},
    {3000001, 13, 1}, {257, 256, 2},    {8 << 20, 256, 31},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void pieces_out(struct side *side)
{
    struct pair pair = pair_open(side);
    mx_segment_t list[MX_MAX_SEGMENTS];

    for (int i = 0; i < SHAPES; i++) {
        char *buffer = fenced(shapes[i].size);
        uint32_t count = cut(list, buffer, shapes[i].size, shapes[i].out);
        mx_request_t request;

        fill(buffer, shapes[i].size, (uint64_t)i);
        OK(mx_isend(pair.ep, count == 0 ? NULL : list, count, pair.peer, (uint64_t)i, NULL,
                    &request));
        memset(list, 0xee, sizeof list); /* the library has copied it */
        succeed(pair.ep, request, shapes[i].size);
        fenced_free(buffer);
    }
    pair_close(&pair);
}

static void pieces_in(struct side *side)
{
    struct pair pair = pair_open(side);
    mx_segment_t list[MX_MAX_SEGMENTS];

    for (int i = 0; i < SHAPES; i++) {
        char *buffer = fenced(shapes[i].size);
        uint32_t count = cut(list, buffer, shapes[i].size, shapes[i].in);
        mx_request_t request;

        OK(mx_irecv(pair.ep, count == 0 ? NULL : list, count, (uint64_t)i, EXACTLY, NULL,
                    &request));
        memset(list, 0xee, sizeof list);
        succeed(pair.ep, request, shapes[i].size);
        check_filled(buffer, shapes[i].size, (uint64_t)i);
        fenced_free(buffer);
    }
    pair_close(&pair);
}

/* ---- truncation ---- */

static const struct {
    size_t size, room;
} tight[] = {
    {1, 0},         {100, 99},        {5000, 8},        {32768, 0},        {32768, 32767},
    {32769, 32768}, {32769, 0},       {500000, 1},      {500000, 499999},  {1 << 20, 70000},
};
enum { TIGHT = sizeof tight / sizeof tight[0] };

static void sends_too_much(struct side *side)
{
    struct pair pair = pair_open(side);

    for (int i = 0; i < 2 * TIGHT; i++) {
        size_t size = tight[i % TIGHT].size, room = tight[i % TIGHT].room;
        void *buffer = fenced(size);
        mx_status_t status;

        if (i == TIGHT)
            pair_sync(&pair); /* messages from now on find no receive */
        fill(buffer, size, (uint64_t)i);
        status = finish(pair.ep, send_to(pair.ep, pair.peer, buffer, size, (uint64_t)i));
        if (size <= 32768) {
            STATUS_IS(status, MX_STATUS_SUCCESS);
            CHECK_THAT(status.xfer_length, ==, size);
        } else {
            STATUS_IS(status, MX_STATUS_TRUNCATED);
            CHECK_THAT(status.xfer_length, ==, room);
        }
        CHECK_THAT(status.msg_length, ==, size);
        fenced_free(buffer);
    }
    pair_close(&pair);
}

static void has_too_little_room(struct side *side)
{
    struct pair pair = pair_open(side);
    void *buffers[TIGHT];
    mx_request_t requests[TIGHT];

    for (int i = 0; i < 2 * TIGHT; i++) {
        size_t room = tight[i % TIGHT].room;

        if (i == 0) { /* posted before their messages are sent, most likely */
            for (int j = 0; j < TIGHT; j++) {
                buffers[j] = fenced(tight[j].room);
                requests[j] = receive(pair.ep, buffers[j], tight[j].room, (uint64_t)j, EXACTLY);
            }
        } else if (i == TIGHT) {
            pair_sync(&pair);
        }
        if (i >= TIGHT) {
            mx_status_t found = probe_for(pair.ep, (uint64_t)i, EXACTLY);

            CHECK_THAT(found.msg_length, ==, tight[i % TIGHT].size);
            buffers[i % TIGHT] = fenced(room);
            requests[i % TIGHT] = receive(pair.ep, buffers[i % TIGHT], room, (uint64_t)i, EXACTLY);
        }
        mx_status_t status = finish(pair.ep, requests[i % TIGHT]);

        STATUS_IS(status, MX_STATUS_TRUNCATED);
        CHECK_THAT(status.msg_length, ==, tight[i % TIGHT].size);
        CHECK_THAT(status.xfer_length, ==, room);
        CHECK_THAT(status.match_info, ==, i);
        check_filled(buffers[i % TIGHT], room, (uint64_t)i);
        fenced_free(buffers[i % TIGHT]);
    }
    pair_close(&pair);
}

/* ---- many small ones ---- */

/* Messages that cost far more than the credits that a peer lends at first. */
enum { MANY = 400, SMALL = 1000 };

static void sends_all_before_it_receives(struct side *side)
{
    struct pair pair = pair_open(side);
    unsigned char out[SMALL], in[SMALL];

    for (uint64_t i = 0; i < MANY; i++) {
        fill(out, SMALL, i);
        succeed(pair.ep, send_to(pair.ep, pair.peer, out, SMALL, i), SMALL);
    }
    for (uint64_t i = 0; i < MANY; i++) {
        succeed(pair.ep, receive(pair.ep, in, SMALL, i, EXACTLY), SMALL);
        check_filled(in, SMALL, i);
    }
    pair_close(&pair);
}

PARTY_TESTS(
    PAIR(messages_of_every_size_go_there_and_back, echo, echoed),
    PAIR(up_to_256_segments_make_one_message, pieces_out, pieces_in),
    PAIR(two_peers_send_many_small_messages_before_they_receive, sends_all_before_it_receives,
         sends_all_before_it_receives),
    PAIR(a_longer_message_is_truncated_and_nothing_written_behind, sends_too_much,
         has_too_little_room))
