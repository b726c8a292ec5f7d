/* See stage.h. */
#include "stage.h"

#include <sys/socket.h>

/* ---- roles ---- */

void echo_until_stopped(struct side *side)
{
    while (!heard_anything(side)) {
        struct arrival arrival;
        struct op reply = {0};

        if (!host_next_within(&arrival, 10))
            continue;
        if (op_send(&reply, arrival.from, arrival.buffer, arrival.size, arrival.tag) >= 0)
            op_wait(&reply);
        arrival_free(&arrival);
    }
    hear(side, "stop");
    host_stop();
}

void echo_server(struct side *side)
{
    tell(side, "endpoint", host_start_server());
    echo_until_stopped(side);
}

void good_client(struct side *side)
{
    static const bmi_size_t sizes[] = {8, 20000, 200000};
    struct bmi_method_addr *server;
    int64_t turn;

    host_start_client();
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    while ((turn = pair_hear(side, "go")) >= 0) {
        for (int i = 0; i < 3; i++) {
            size_t size = (size_t)sizes[i];
            char *out = fenced(size), *in = fenced(size);
            struct op receive = {0};
            bmi_msg_tag_t tag = (bmi_msg_tag_t)(turn * 3 + i);

            fill(out, size, (uint64_t)tag);
            CHECK_THAT(op_recv(&receive, server, in, sizes[i], tag), >=, 0);
            send_request(server, out, sizes[i], tag);
            op_received(&receive, sizes[i]);
            check_filled(in, size, (uint64_t)tag);
            fenced_free(out);
            fenced_free(in);
        }
        tell(side, "ok", turn);
    }
    host_stop();
}

void dialler(struct side *side)
{
    struct bmi_method_addr *server;
    struct op send = {0};
    char text[ADDRESS_SIZE];
    int64_t endpoint = hear(side, "endpoint");

    snprintf(text, sizeof text, "mx://%s@127.0.0.1:0:%d",
             hear(side, "door") == DOOR_TCP ? "tcp" : "local", (int)endpoint);
    unsetenv("MX_PORT"); /* the address names the port */
    host_start_client();
    server = host_lookup(text);
    CHECK(server != NULL);
    op_send_unexpected(&send, server, "hello", 5, 1);
    for (deadline_t deadline = deadline_in(3 * WAIT_MS); !deadline_over(deadline);)
        host_pump(5);
}

/* ---- the stage ---- */

void check_good(struct stage *stage)
{
    child_tell(stage->good, "go", stage->turn);
    CHECK_THAT(child_hear(stage->good, "ok"), ==, stage->turn);
    stage->turn++;
}

void set_up(struct world *world, struct stage *stage)
{
    stage->turn = 0;
    stage->server = spawn(world, "server");
    stage->endpoint = (int)child_hear(stage->server, "endpoint");
    stage->good = spawn(world, "good");
    child_tell(stage->good, "endpoint", stage->endpoint);
    check_good(stage);
}

int64_t newcomer(struct world *world, int endpoint)
{
    struct child *good = spawn(world, "good");
    int64_t begin = now_ms(), end;

    child_tell(good, "endpoint", endpoint);
    child_tell(good, "go", 0);
    CHECK_THAT(child_hear(good, "ok"), ==, 0);
    end = now_ms();
    child_tell(good, "go", -1);
    child_end(good);
    return end - begin;
}

void take_down(struct stage *stage)
{
    check_good(stage);
    child_tell(stage->good, "go", -1);
    child_end(stage->good);
    child_tell(stage->server, "stop", 0);
    child_end(stage->server);
}

int dial(const struct stage *stage, enum wire_door door)
{
    return wire_connect(door, child_pid(stage->server), stage->endpoint);
}

bool door_is_open(const struct stage *stage, enum wire_door door)
{
    int fd = dial(stage, door);

    if (fd >= 0) {
        close(fd);
        return true;
    }
    /* Over rdm, too: peers connect over TCP there. */
    if (port_is("auto") || port_is(door == DOOR_TCP ? "tcp" : "local") ||
        (port_uses_libfabric() && door == DOOR_TCP))
        FAIL("the %s door of the server is shut", door == DOOR_TCP ? "tcp" : "local");
    return false;
}

bool set_up_with_door(struct world *world, struct stage *stage, enum wire_door door)
{
    bool open;

    set_up(world, stage);
    open = door_is_open(stage, door);
    if (!open)
        take_down(stage);
    return open;
}

/* ---- recordings ---- */

size_t record_next(int listener, unsigned char opening[OPENING_MAX])
{
    int fd = wire_accept(listener, WAIT_MS);
    size_t size = wire_hear(fd, opening, WIRE_PREAMBLE, WAIT_MS);

    CHECK_THAT(size, ==, WIRE_PREAMBLE);
    CHECK(wire_say(fd, opening, WIRE_PREAMBLE));
    size += wire_hear(fd, opening + size, OPENING_MAX - size, 300);
    close(fd);
    CHECK_THAT(size, >=, SESSION_AT + 8);
    return size;
}

size_t record_tcp(struct world *world, unsigned char opening[OPENING_MAX])
{
    int port = 0, listener = wire_listen(&port);
    struct child *client = spawn(world, "dialler");
    size_t size;

    child_tell(client, "endpoint", port);
    child_tell(client, "door", DOOR_TCP);
    size = record_next(listener, opening);
    close(listener);
    child_kill(client);
    return size;
}

void claim(unsigned char *opening, int endpoint, uint64_t session)
{
    wire_put(opening + ENDPOINT_AT, (uint64_t)endpoint, 4);
    wire_put(opening + SESSION_AT, session, 8);
}

int enter(const struct stage *stage, const unsigned char *opening, size_t size)
{
    static unsigned char visits;
    unsigned char heard[WIRE_PREAMBLE + WIRE_HEADER], copy[OPENING_MAX];
    int fd = dial(stage, DOOR_TCP);

    CHECK(fd >= 0);
    CHECK(size <= sizeof copy);
    memcpy(copy, opening, size);
    copy[SESSION_AT] ^= ++visits;
    if (wire_say(fd, copy, size) &&
        wire_hear(fd, heard, sizeof heard, WAIT_MS) == sizeof heard)
        return fd;
    close(fd);
    return -1;
}
