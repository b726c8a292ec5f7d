/*
 * A server whose limit of descriptors does not allow two for each fabric peer: tcp;ofi_rxm has a socket for each
 * peer, so the meeting links have to be closed.
 *
 *     client ◄── meeting link ──► server      until links or descriptors are short
 *            ◄═══ the fabric ═══►             after the move
 *
 * Runs over rdm only; other ports need a descriptor for each peer anyway.
 */
#include "../support/limit.h"
#include "../support/pair.h"

enum {
    CLIENTS = 30,
    DESCRIPTORS = 72,
    TAG = 1,
    SIZE = 8,
};

static int number_of(const char *name, int usual)
{
    const char *text = getenv(name);

    return text != NULL ? atoi(text) : usual;
}

/* Answers each request until the director sends a note. */
static void server(struct side *side)
{
    int answered = 0;

    limit_to(RLIMIT_NOFILE, (rlim_t)number_of("FABRIC_CROWD_DESCRIPTORS", DESCRIPTORS));
    pair_serve(side);
    while (!heard_anything(side)) {
        struct arrival request;
        struct op answer = {0};

        if (!host_next_within(&request, 5))
            continue;
        CHECK_THAT(op_send(&answer, request.from, request.buffer, SIZE, TAG), >=, 0);
        op_sent(&answer);
        arrival_free(&request);
        answered++;
    }
    hear(side, "gone");
    tell(side, "answered", answered);
    host_stop();
}

/* Polls rarely, because many processes do. */
static void idle_until(struct side *side, const char *word)
{
    while (!heard_anything(side))
        host_pump(200);
    hear(side, word);
}

static void client(struct side *side)
{
    struct bmi_method_addr *address = pair_join(side);
    char question[SIZE] = "please", answer[SIZE];

    CHECK(try_ask(address, question, answer, SIZE, TAG));
    tell(side, "answered", 0);
    idle_until(side, "again");
    CHECK(try_ask(address, question, answer, SIZE, TAG));
    tell(side, "answered", 0);
    idle_until(side, "end");
    host_stop();
}

static void comes(struct world *world)
{
    int count = number_of("FABRIC_CROWD_CLIENTS", CLIENTS);
    struct child *house, **clients = calloc((size_t)count, sizeof *clients);
    int64_t endpoint;

    if (!port_is("rdm"))
        skip_test("only fabrics");
    CHECK(clients != NULL);
    house = spawn(world, "server");
    endpoint = child_hear(house, "endpoint");
    for (int i = 0; i < count; i++) {
        clients[i] = spawn(world, "client");
        child_tell(clients[i], "endpoint", endpoint);
        child_hear(clients[i], "answered");
    }
    for (int i = 0; i < count; i++) {
        child_tell(clients[i], "again", 0);
        child_hear(clients[i], "answered");
    }
    child_tell(house, "gone", 0);
    CHECK_THAT(child_hear(house, "answered"), ==, 2 * count);
    for (int i = 0; i < count; i++)
        child_tell(clients[i], "end", 0);
    for (int i = 0; i < count; i++)
        child_end(clients[i]);
    child_end(house);
    free(clients);
}

TESTS(DIRECTED(a_server_serves_more_fabric_peers_than_half_its_descriptors, comes, {"server", server}, {"client", client}))
