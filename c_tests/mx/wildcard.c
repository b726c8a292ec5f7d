/*
 * Several senders, one receiver that takes from any of them.
 *
 *     sender 0 ──┐
 *     sender 1 ──┼──► any bits under a mask ──► each sender's messages in order, none twice
 *     sender n ──┘
 */
#include "support/party.h"

#include <stdlib.h>
#include <string.h>

#include "../support/pattern.h"

enum { SENDERS = 5, EACH = 60, ROOM = 50000 };

static size_t size_of(int i)
{
    return i % 7 == 3 ? ROOM : (size_t)(i * 13 % 3000) + 8;
}

static void sender(struct side *side)
{
    mx_endpoint_t ep = party_open();
    uint32_t receiver = (uint32_t)hear(side, "receiver");
    uint64_t number = (uint64_t)hear(side, "number");
    mx_endpoint_addr_t to = connect_to(ep, receiver);
    mx_request_t requests[EACH];
    void *buffers[EACH];

    for (int i = 0; i < EACH; i++) {
        buffers[i] = fenced(size_of(i));
        fill(buffers[i], size_of(i), number * 1000 + (uint64_t)i);
        requests[i] = send_to(ep, to, buffers[i], size_of(i), number << 32 | (uint64_t)i);
    }
    for (int i = 0; i < EACH; i++) {
        succeed(ep, requests[i], size_of(i));
        fenced_free(buffers[i]);
    }
    tell(side, "sent", id_of(ep));
    hear(side, "stop");
    party_close(ep);
}

static void receiver(struct side *side)
{
    mx_endpoint_t ep = party_open();
    mx_endpoint_addr_t source[SENDERS];
    int next[SENDERS] = {0};
    enum { WINDOW = 16 };
    mx_request_t window[WINDOW];
    void *buffers[WINDOW];

    tell(side, "receiver", id_of(ep));
    for (int i = 0; i < WINDOW; i++) {
        buffers[i] = fenced(ROOM);
        window[i] = receive(ep, buffers[i], ROOM, 0, UINT64_C(0xffff000000000000));
    }
    for (int total = 0; total < SENDERS * EACH; total++) {
        int slot = total % WINDOW; /* messages take receives in their order */
        mx_status_t status = finish(ep, window[slot]);
        uint64_t who = status.match_info >> 32, which = status.match_info & UINT32_MAX;
        uint64_t nic, peer_nic = local_nic();
        uint32_t id;

        STATUS_IS(status, MX_STATUS_SUCCESS);
        CHECK_THAT(who, <, SENDERS);
        if (next[who] == 0) {
            source[who] = status.source;
            OK(mx_decompose_endpoint_addr(status.source, &nic, &id));
            CHECK(nic == peer_nic);
            for (uint64_t other = 0; other < SENDERS; other++)
                CHECK(other == who || next[other] == 0 ||
                      !same_address(source[other], status.source));
        }
        CHECK(same_address(source[who], status.source));
        CHECK_THAT(which, ==, next[who]);
        next[who]++;
        CHECK_THAT(status.xfer_length, ==, size_of((int)which));
        check_filled(buffers[slot], status.xfer_length, who * 1000 + which);
        window[slot] = receive(ep, buffers[slot], ROOM, 0, UINT64_C(0xffff000000000000));
    }
    tell(side, "received", 0);
    hear(side, "stop");
    OK(mx_close_endpoint(ep)); /* receives are pending */
    for (int i = 0; i < WINDOW; i++)
        fenced_free(buffers[i]);
    party_stop();
}

static void many_to_one(struct world *world)
{
    struct child *one = spawn(world, "receiver"), *many[SENDERS];
    int64_t id = child_hear(one, "receiver");

    for (int i = 0; i < SENDERS; i++) {
        many[i] = spawn(world, "sender");
        child_tell(many[i], "receiver", id);
        child_tell(many[i], "number", i);
    }
    for (int i = 0; i < SENDERS; i++)
        child_hear(many[i], "sent");
    child_hear(one, "received");
    for (int i = 0; i < SENDERS; i++) {
        child_tell(many[i], "stop", 0);
        child_end(many[i]);
    }
    child_tell(one, "stop", 0);
    child_end(one);
}

/* ---- a star of endpoints in one process ---- */

static void star(struct side *side)
{
    enum { RAYS = 8 };
    mx_endpoint_t hub = party_open(), rays[RAYS];
    mx_request_t requests[RAYS];
    uint64_t in[RAYS], out[RAYS], seen = 0;

    (void)side;
    for (int i = 0; i < RAYS; i++)
        requests[i] = receive(hub, &in[i], 8, 0, ANYTHING);
    for (int i = 0; i < RAYS; i++) {
        rays[i] = open_any();
        out[i] = UINT64_C(1) << i;
        succeed(rays[i], send_to(rays[i], connect_to(rays[i], id_of(hub)), &out[i], 8, out[i]), 8);
    }
    for (int i = 0; i < RAYS; i++) {
        mx_status_t status = succeed(hub, requests[i], 8);
        uint64_t nic;
        uint32_t id;

        CHECK(in[i] == status.match_info);
        CHECK((seen & in[i]) == 0);
        seen |= in[i];
        /* The source can be answered without connecting. */
        OK(mx_decompose_endpoint_addr(status.source, &nic, &id));
        for (int ray = 0; ray < RAYS; ray++)
            if (out[ray] == in[i])
                CHECK_THAT(id, ==, id_of(rays[ray]));
        for (int ray = 0; ray < RAYS; ray++)
            if (out[ray] == in[i])
                exchange(hub, status.source, rays[ray], 100, in[i]);
    }
    CHECK_THAT(seen, ==, (UINT64_C(1) << RAYS) - 1);
    for (int i = 0; i < RAYS; i++)
        OK(mx_close_endpoint(rays[i]));
    party_close(hub);
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        DIRECTED(wildcard_receives_take_from_all_senders_in_each_ones_order, many_to_one,
                 {"receiver", receiver}, {"sender", sender}),
        SOLO(an_endpoint_hears_many_and_answers_their_sources, star),
        {0},
    };

    return party_main(argc, argv, scenarios);
}
