/*
 * A site's secret (MX_SECRET_FILE): a peer without it can be neither called nor heard.
 *
 *     host ── opens an endpoint ── its file      guest ── connects ── its file, another, or none
 *
 *     the same secret     as without one
 *     not the same        mx_iconnect: MX_STATUS_REJECTED      mx_connect: MX_NO_PERM
 *     a file others read  mx_open_endpoint: no endpoint
 */
#include "support/party.h"

#include <stdlib.h>

#include "../support/secret_file.h"

static const char ours[] = "one and the same for all", another[] = "something else altogether";

static mx_endpoint_t open_knowing(const char *letters)
{
    mx_endpoint_t ep;

    secret_file(letters, 0600);
    ep = party_open();
    secret_file_gone();
    return ep;
}

/* ---- both know it ---- */

static void knowing(struct side *side)
{
    struct pair pair;

    secret_file(ours, 0400);
    pair = pair_open(side);
    secret_file_gone();
    for (uint64_t i = 0; i < 3; i++) {
        uint32_t mine = pair.id, theirs = 0;
        mx_request_t receiving = receive(pair.ep, &theirs, sizeof theirs, i, EXACTLY);

        succeed(pair.ep, send_to(pair.ep, pair.peer, &mine, sizeof mine, i), sizeof mine);
        succeed(pair.ep, receiving, sizeof theirs);
        CHECK_THAT(theirs, ==, pair.peer_id);
    }
    pair_close(&pair);
}

/* ---- not the same ---- */

/* Waits for a message from any peer, and hears none. */
static void lonely(struct side *side, const char *letters)
{
    mx_endpoint_t ep = open_knowing(letters);
    char in[8];
    mx_request_t waiting = receive(ep, in, sizeof in, 0, ANYTHING);
    mx_status_t status;
    uint32_t result = 0;

    tell(side, "id", id_of(ep));
    while (!heard_anything(side))
        CHECK(!is_done(ep, &waiting, &status));
    hear(side, "refused");
    CHECK(!is_done(ep, &waiting, &status));
    OK(mx_cancel(ep, &waiting, &result));
    CHECK_THAT(result, ==, 1);
    party_close(ep);
}

/* Learns at once, each time, that it is not wanted. */
static void unwanted(struct side *side, const char *letters)
{
    mx_endpoint_t ep = open_knowing(letters);
    uint32_t id = (uint32_t)hear(side, "id");

    for (int attempt = 0; attempt < 3; attempt++) {
        uint32_t timeout = (uint32_t)(WAIT_MS * slower());
        int64_t before = now_ms();
        mx_request_t request = NULL;
        mx_endpoint_addr_t address;
        mx_status_t status;

        OK(mx_iconnect(ep, local_nic(), id, KEY, 0, NULL, &request));
        status = finish(ep, request);
        STATUS_IS(status, MX_STATUS_REJECTED);
        REFUSED(mx_connect(ep, local_nic(), id, KEY, timeout, &address), MX_NO_PERM);
        CHECK_THAT(now_ms() - before, <, WAIT_MS / 2 * slower());
    }
    tell(side, "refused", 0);
    party_close(ep);
}

static void host_with_ours(struct side *side) { lonely(side, ours); }
static void host_without(struct side *side) { lonely(side, NULL); }
static void guest_with_ours(struct side *side) { unwanted(side, ours); }
static void guest_with_another(struct side *side) { unwanted(side, another); }
static void guest_without(struct side *side) { unwanted(side, NULL); }

/* ---- a file that keeps no secret ---- */

static void readable_by_all(struct side *side)
{
    mx_endpoint_t ep = NULL;

    (void)side;
    secret_file(ours, 0644);
    party_start();
    REFUSED_SOMEHOW(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, NULL, 0, &ep));
    CHECK(ep == NULL);
    secret_file_gone();
    party_stop();
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        PAIR(who_knows_the_secret_gets_in, knowing, knowing),
        PAIR(who_has_none_does_not, host_with_ours, guest_without),
        PAIR(who_has_another_does_not, host_with_ours, guest_with_another),
        PAIR(who_has_none_is_not_believed_when_called, host_without, guest_with_ours),
        SOLO(a_file_that_others_can_read_opens_nothing, readable_by_all),
        {0},
    };

    return party_main(argc, argv, scenarios);
}
