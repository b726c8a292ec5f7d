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

static struct bmi_method_addr *take_hello(void)
{
    struct arrival arrival = host_next();

    CHECK_THAT(arrival.tag, ==, HELLO_TAG);
    CHECK_THAT(arrival.size, ==, sizeof hello);
    CHECK(memcmp(arrival.buffer, hello, sizeof hello) == 0);
    arrival_free(&arrival);
    return arrival.from;
}

struct bmi_method_addr *pair_accept(void)
{
    struct bmi_method_addr *client = take_hello();

    send_message(client, hello, sizeof hello, HELLO_TAG);
    return client;
}

bool pair_try_hello(struct bmi_method_addr *server)
{
    char answer[sizeof hello];

    if (!try_ask(server, hello, answer, sizeof hello, HELLO_TAG))
        return false;
    CHECK(memcmp(answer, hello, sizeof hello) == 0);
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

struct bmi_method_addr *pair_call_self(struct bmi_method_addr *self)
{
    struct bmi_method_addr *called;

    send_request(self, hello, sizeof hello, HELLO_TAG);
    called = take_hello();
    CHECK(called != self);
    return called;
}

void pair_exchange_ends(struct bmi_method_addr *end, struct bmi_method_addr *other_end, size_t size, bmi_msg_tag_t tag)
{
    struct bmi_method_addr *ends[2] = {end, other_end};
    struct op receive[2] = {{0}};
    char *out[2], *in[2];

    for (int i = 0; i < 2; i++) {
        in[i] = fenced(size);
        out[i] = fenced(size);
        fill(out[i], size, (uint64_t)tag * 2 + (uint64_t)i);
        CHECK_THAT(op_recv(&receive[i], ends[i], in[i], (bmi_size_t)size, tag), >=, 0);
    }
    for (int i = 0; i < 2; i++)
        send_message(ends[i], out[i], (bmi_size_t)size, tag);
    for (int i = 0; i < 2; i++) {
        op_received(&receive[i], (bmi_size_t)size);
        check_filled(in[i], size, (uint64_t)tag * 2 + (uint64_t)!i);
        fenced_free(out[i]);
        fenced_free(in[i]);
    }
}

void pair_exchange_self(struct bmi_method_addr *self, size_t size, bmi_msg_tag_t tag)
{
    pair_exchange_ends(self, pair_call_self(self), size, tag);
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

void send_pattern(struct bmi_method_addr *to, bmi_size_t size, bmi_msg_tag_t tag, uint64_t seed)
{
    void *out = fenced((size_t)size);

    fill(out, (size_t)size, seed);
    send_message(to, out, size, tag);
    fenced_free(out);
}

void receive_pattern(struct bmi_method_addr *from, bmi_size_t size, bmi_msg_tag_t tag, uint64_t seed)
{
    void *in = fenced((size_t)size);

    receive_message(from, in, size, tag);
    check_filled(in, (size_t)size, seed);
    fenced_free(in);
}

struct bmi_method_addr *take_pattern(bmi_size_t size, bmi_msg_tag_t tag, uint64_t seed)
{
    struct arrival arrival = host_next();

    CHECK_THAT(arrival.tag, ==, tag);
    CHECK_THAT(arrival.size, ==, size);
    check_filled(arrival.buffer, (size_t)size, seed);
    arrival_free(&arrival);
    return arrival.from;
}

void pair_exchange_all(struct bmi_method_addr *peer, int times)
{
    static const size_t sizes[] = {0, 8, 5000, 32768, 300000, 3000000};

    for (int i = 0; i < times; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0] - (i > 0); k++)
            pair_exchange(peer, sizes[k], i);
}

void pair_hears_death(struct bmi_method_addr *caller)
{
    UNTIL (host_forgotten_of(caller) > 0)
        host_testcontext(16, 0, 5);
}

void pair_is_dead(struct bmi_method_addr *caller)
{
    struct op ended[3] = {{0}};
    char in[8];

    CHECK_THAT(host_forgotten_of(caller), ==, 1);
    CHECK(host_may_drop(caller));
    CHECK_THAT(op_recv(&ended[0], caller, in, sizeof in, 1), ==, 0);
    CHECK_THAT(op_send(&ended[1], caller, hello, sizeof hello, 2), ==, 0);
    CHECK_THAT(op_send_unexpected(&ended[2], caller, hello, sizeof hello, 3), ==, 0);
    host_testcontext(16, 0, 0);
    for (int i = 0; i < 3; i++) {
        CHECK(op_done(&ended[i]));
        op_failed(&ended[i], BMI_ENETRESET);
    }
}

void pair_idle(struct side *side)
{
    while (!heard_anything(side))
        host_pump(5);
}

void only_server(struct side *side)
{
    pair_server(side);
    pair_part(side);
}

void only_client(struct side *side)
{
    pair_client(side);
    pair_part(side);
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
