/*
 * initialize and finalize, repeatedly, and the addresses in between.
 *
 *     lookup(listen) → initialize → ... → close_context → finalize → DROP_ADDR for each address
 *                          ▲                                  │
 *                          └──────────────────────────────────┘ in one process, any number of times
 */
#include "../support/pair.h"
#include "../support/memory.h"

/* ---- repeatedly ---- */

static void begins_again(struct side *side)
{
    for (int i = 0; i < 5; i++) {
        int endpoint = host_start_server();

        pair_exchange_self(host_lookup_endpoint(endpoint), 8, i);
        host_stop();
        host_start_client();
        host_stop();
    }
}

/* ---- second server ---- */

static void first_server(struct side *side)
{
    pair_serve(side);
    pair_hear(side, "refused");
    pair_accept(); /* the first server is not affected */
    pair_part(side);
}

static void second_server(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint"), files;

    host_load();
    CHECK_THAT(host_try_server(endpoint), <, 0);
    files = entries("/proc/self/fd");
    for (int i = 0; i < 30; i++)
        CHECK_THAT(host_try_server(endpoint), <, 0);
    CHECK_THAT(entries("/proc/self/fd"), <=, files); /* nor anything else is left (fault 16) */
    CHECK_THAT(ops->finalize(), <, 0);
    tell(side, "refused", 0);
    host_start_server(); /* another endpoint is free */
    pair_hello(host_lookup_endpoint(endpoint));
    pair_part(side);
}

/* ---- DROP_ADDR ---- */

static void drop_server(struct side *side)
{
    pair_serve(side);
    for (int i = 0; i < 3; i++)
        host_take(1);
    pair_part(side);
}

static void drops(struct side *side)
{
    struct bmi_method_addr *one = pair_join(side);
    char text[ADDRESS_SIZE];
    struct bmi_method_addr *unused = host_lookup("mx://localhost:0:2001");
    struct bmi_method_addr *two, *three;
    struct op receive[2] = {{0}};
    char buffer[2][64];

    /* An address that was never used. */
    CHECK(unused != NULL);
    host_drop(unused);
    send_request(one, "1", 1, 1);
    /* A second and a third name of the same peer. */
    snprintf(text, sizeof text, "%s", ops->rev_lookup_unexpected(one));
    two = host_lookup(text);
    three = host_lookup(text);
    CHECK(two != NULL && three != NULL);
    /* Operations are pending on two of the names while the third is dropped: they stay. */
    CHECK_THAT(op_recv(&receive[0], one, buffer[0], 64, 1), ==, 0);
    CHECK_THAT(op_recv(&receive[1], two, buffer[1], 64, 2), ==, 0);
    host_drop(three);
    send_request(two, "2", 1, 1);
    CHECK(!op_done(&receive[0]));
    CHECK_THAT(ops->cancel(receive[0].id, 0), ==, 0);
    op_failed(&receive[0], BMI_ECANCEL);
    host_drop(one);
    send_request(two, "3", 1, 1);
    /* The last name is dropped with a receive pending, which completes with an error. */
    host_drop(two);
    op_wait(&receive[1]);
    CHECK_THAT(receive[1].error, <, 0);
    pair_part(side);
}

TESTS(
    SOLO(finalize_and_initialize_again_in_one_process, begins_again),
    PAIR(a_second_server_on_the_endpoint_gets_an_error, first_server, second_server),
    PAIR(dropping_one_name_of_a_peer_leaves_the_others, drop_server, drops))
