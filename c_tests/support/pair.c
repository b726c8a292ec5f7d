/* See pair.h. */
#include "pair.h"

enum { HELLO_TAG = 0x0e110 };

static const char hello[] = "hello";

int pair_serve(struct side *side)
{
    int endpoint = host_start_server();

    tell(side, "endpoint", endpoint);
    return endpoint;
}

struct bmi_method_addr *pair_join(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");

    host_start_client();
    return host_lookup_endpoint(endpoint);
}

struct bmi_method_addr *pair_accept(void)
{
    struct arrival arrival = host_next();
    struct bmi_method_addr *client = arrival.from;

    CHECK_THAT(arrival.tag, ==, HELLO_TAG);
    CHECK_THAT(arrival.size, ==, sizeof hello);
    CHECK(memcmp(arrival.buffer, hello, sizeof hello) == 0);
    arrival_free(&arrival);
    send_message(client, hello, sizeof hello, HELLO_TAG);
    return client;
}

bool pair_try_hello(struct bmi_method_addr *server)
{
    struct op send = {0}, receive = {0};
    char buffer[64];

    if (op_recv(&receive, server, buffer, sizeof buffer, HELLO_TAG) < 0)
        return false;
    if (op_send_unexpected(&send, server, hello, sizeof hello, HELLO_TAG) >= 0)
        op_wait(&send);
    if ((send.posted < 0 || send.error != 0) && !op_done(&receive))
        CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
    op_wait(&receive);
    if (receive.error != 0)
        return false;
    CHECK_THAT(receive.size, ==, sizeof hello);
    CHECK(memcmp(buffer, hello, sizeof hello) == 0);
    return true;
}

void pair_await_death(void)
{
    for (deadline_t deadline = deadline_in(5 * WAIT_MS); !deadline_over(deadline);)
        host_pump(5);
    FAIL("it was not killed");
}

void pair_hello(struct bmi_method_addr *server)
{
    if (!pair_try_hello(server))
        FAIL("a hello failed");
}

struct bmi_method_addr *pair_server(struct side *side)
{
    pair_serve(side);
    return pair_accept();
}

struct bmi_method_addr *pair_client(struct side *side)
{
    struct bmi_method_addr *server = pair_join(side);

    pair_hello(server);
    return server;
}

int64_t pair_hear(struct side *side, const char *word)
{
    deadline_t deadline = deadline_in(2 * WAIT_MS);

    while (!heard_anything(side)) {
        if (deadline_over(deadline))
            FAIL("the other side did not say '%s' in time", word);
        host_pump(2);
    }
    return hear(side, word);
}

void pair_exchange(struct bmi_method_addr *peer, size_t size, bmi_msg_tag_t tag)
{
    struct op receive = {0};
    char *out = fenced(size), *in = fenced(size);

    fill(out, size, (uint64_t)tag);
    CHECK_THAT(op_recv(&receive, peer, in, (bmi_size_t)size, tag), >=, 0);
    send_message(peer, out, (bmi_size_t)size, tag);
    op_received(&receive, (bmi_size_t)size);
    check_filled(in, size, (uint64_t)tag);
    fenced_free(out);
    fenced_free(in);
}

void pair_sync(struct side *side)
{
    tell(side, "here", 0);
    pair_hear(side, "here");
}

void pair_part(struct side *side)
{
    tell(side, "bye", 0);
    pair_hear(side, "bye");
    host_stop();
}
