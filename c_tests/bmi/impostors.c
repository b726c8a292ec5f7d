/*
 * Processes of the same machine that claim to be a server's client, or the server, while both work.
 *
 *     server ◄──── client, bystander           attacker: this user, or another one (root)
 *       `─────────── "I am the client" ───────────'
 *
 * Over tcp and datagrams attacker and client share the machine's name, and any number may be claimed; over shared
 * memory a user may claim only the numbers of its own endpoints. Each claim makes a peer of its own
 * (support/siege.h).
 */
#include "../support/attack.h"
#include "../support/siege.h"
#include "../support/service.h"
#include "../support/user.h"

#include <sys/socket.h>

enum {
    ASSAULT_MS = 60000,
    FIRST_OWN = 40000,
    LAST_OWN = 60000,
    LOCALHOST = 0x7f000001,
    WAITING = 200,     /* more than one round reads */
    STOPPED_MS = 6000, /* longer than the five seconds that a stranger has */
    LISTENS = 4,       /* attempts to read an answer */
};

static void server(struct side *side)
{
    serve_attacked(side, NULL);
}

static void client(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");

    host_start_client();
    besieged(side, host_lookup_endpoint(endpoint));
}

/* Finds an endpoint by its number, and its socket by the process that owns it. */
static struct door find_door(int number, pid_t pid)
{
    struct door door = door_of(LOCALHOST, number);
    int type;

    if (door.route == OVER_SHARED_MEMORY)
        CHECK(wire_local_name(pid, door.name, &door.name_length, &type));
    return door;
}

/* Listens as an endpoint of its own beside another one; returns its number. */
static int listen_beside(const struct door *door)
{
    int base = (int)(strrchr(door->name, '-') + 1 - door->name);

    for (int number = FIRST_OWN; number < LAST_OWN; number++) {
        char name[sizeof door->name];
        int fd;

        snprintf(name, sizeof name, "%.*s%d", base, door->name, number);
        fd = wire_listen_local(name, strlen(name), SOCK_SEQPACKET);
        if (fd < 0)
            continue;
        /* The server looks up the user of each link by connecting here; the connection is not accepted. */
        CHECK(listen(fd, SOMAXCONN) == 0);
        return number;
    }
    FAIL("no number is free");
}

/* Introduces itself with that number in the link's first message and that identity in the hello. Returns the
 * answer. */
static int answer_to(const struct door *door, int own_number, const struct identity *as)
{
    struct door from = *door;
    struct identity answerer;
    struct intruder intruder;
    uint32_t id;
    int answer;

    from.own_number = own_number;
    answer = enter_as(&intruder, &from, as, &answerer, &id);
    hang_up(&intruder);
    return answer;
}

static struct door hear_of_door(struct side *side)
{
    int number = (int)hear(side, "number");

    return find_door(number, (pid_t)hear(side, "process"));
}

static void attacker(struct side *side)
{
    struct door of_server = hear_of_door(side), of_client = hear_of_door(side);
    struct identity server, client;
    bool is_another = side->variant != 0;

    if (is_another)
        become_for_good(SOME_USER);
    if (of_server.route == OVER_SHARED_MEMORY)
        of_server.own_number = of_client.own_number = listen_beside(&of_server);
    server = learn(&of_server);
    client = learn(&of_client);
    if (of_server.route == OVER_SHARED_MEMORY) {
        /* A number in the hello that differs from the link's, then the number of another user's endpoint. */
        CHECK_THAT(answer_to(&of_server, of_server.own_number, &client), ==, REFUSED);
        CHECK_THAT(answer_to(&of_client, of_client.own_number, &server), ==, REFUSED);
        CHECK_THAT(answer_to(&of_server, of_client.number, &client), ==, is_another ? TURNED_AWAY : WELCOME);
        CHECK_THAT(answer_to(&of_client, of_server.number, &server), ==, is_another ? TURNED_AWAY : WELCOME);
        if (is_another) {
            client.number = server.number = (uint32_t)of_server.own_number;
        } else {
            int own_number = of_client.number;

            of_client.own_number = of_server.number;
            of_server.own_number = own_number;
        }
    }
    attack(&of_server, &client, true);
    attack(&of_client, &server, false);
    tell(side, "done", 0);
}

static void tell_door(struct child *attacker, int64_t number, const struct child *behind)
{
    child_tell(attacker, "number", number);
    child_tell(attacker, "process", child_pid(behind));
}

/* The variant: true if the attacker is another user. */
static void claim_the_client(struct world *world)
{
    struct siege siege;
    struct child *attacker;
    int64_t endpoint, number = 0;

    if (variant_of(world) != 0 && !users_can_be_had())
        skip_test("there is no root, to be another user");
    siege.server = spawn(world, "server");
    endpoint = child_hear(siege.server, "serving");
    for (int i = 0; i < BESIEGED; i++) {
        siege.clients[i] = spawn(world, "client");
        child_tell(siege.clients[i], "endpoint", endpoint);
        number = child_hear(siege.clients[i], "number");
    }
    siege_begin(&siege);
    attacker = spawn(world, "attacker");
    tell_door(attacker, endpoint, siege.server);
    tell_door(attacker, number, siege.clients[BESIEGED - 1]);
    child_hear_within(attacker, "done", ASSAULT_MS);
    child_end(attacker);
    siege_end(&siege, STRANGERS_MAX);
}

/* ---- a server that is stopped for longer than a stranger may take ---- */

/* Introductions that strangers sent meanwhile are read when the server goes on, including the last one. */
static void stop_the_server(struct world *world)
{
    static struct intruder intruders[WAITING];
    struct child *server = spawn(world, "server");
    int number = (int)child_hear(server, "serving");
    struct door door = find_door(number, child_pid(server));
    struct identity stranger = {.number = 1, .life = 1, .nonce = {1}};

    if (door.route == OVER_SHARED_MEMORY)
        stranger.number = (uint32_t)(door.own_number = listen_beside(&door));
    for (int i = 0; i < WAITING; i++)
        CHECK(call_door(&intruders[i], &door));
    child_stop(server);
    for (int i = 0; i < WAITING; i++)
        say_connect(&intruders[i], &stranger);
    pause_ms(STOPPED_MS);
    child_continue(server);
    for (int i = 0; i < WAITING; i++) {
        unsigned char answer[PACKET_MAX];
        int told = TURNED_AWAY;

        for (int tries = 0; tries < LISTENS && told == TURNED_AWAY; tries++)
            told = hear_answer(&intruders[i], answer);
        CHECK_THAT(told, ==, WELCOME);
        hang_up(&intruders[i]);
    }
    end_service(server, 0);
}

TESTS(
    DIRECTED(strangers_who_wait_for_a_server_that_is_stopped_are_let_in, stop_the_server, {"server", server}),
    DIRECTED_OF(no_stranger_takes_a_clients_place_from_its_own_machine, 0, claim_the_client, {"server", server},
                {"client", client}, {"attacker", attacker}),
    DIRECTED_OF(no_stranger_takes_a_clients_place_as_another_user, 1, claim_the_client, {"server", server},
                {"client", client}, {"attacker", attacker}))
