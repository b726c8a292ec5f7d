/* See bulk.h. */
#include "bulk.h"

#include "log.h"
#include "pair.h"
#include "service.h"

enum {
    CANCEL_MS = 500,
    AFTERWARDS_MS = 1000,
};

/* Sends small requests one after the other until the bulk exchange is over, or for `ms`. Returns the longest round
 * trip in milliseconds. */
static int64_t ask_meanwhile(struct bmi_method_addr *server, const struct exchange *bulk, int ms)
{
    deadline_t deadline = deadline_in(ms);
    int64_t longest = 0;

    while (bulk != NULL ? !is_over(bulk) : !deadline_over(deadline)) {
        int64_t begin = now_ms(), took;
        int code;

        if (!try_get(server, 8, &code))
            FAIL("a small request: %s", code_text(code));
        took = now_ms() - begin;
        if (took > longest)
            longest = took;
    }
    return longest;
}

/* Begins a get and cancels it when its first bytes have arrived. */
static void cancel_a_get(struct bmi_method_addr *server, int64_t size)
{
    const uint64_t pattern = 0x5eed;
    struct exchange exchange;
    char *blank = fenced(8);

    begin_get(&exchange, server, size);
    UNTIL (memcmp(blank, exchange.in, 8) != 0)
        host_pump(1);
    fenced_free(blank);
    CHECK(!op_done(&exchange.receive));
    CHECK_THAT(ops->cancel(exchange.receive.id, 0), ==, 0);
    UNTIL_WITHIN (CANCEL_MS, op_done(&exchange.receive))
        host_pump(1);
    op_failed(&exchange.receive, BMI_ECANCEL);
    op_sent(&exchange.send);
    fill(exchange.in, (size_t)size, pattern);
    ask_meanwhile(server, NULL, AFTERWARDS_MS);
    check_filled(exchange.in, (size_t)size, pattern);
    fenced_free(exchange.in);
}

void bulk_client(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint"), what;
    struct bmi_method_addr *server;
    struct op unused = {0};
    char byte;

    log_take();
    host_start_client();
    server = service_of("127.0.0.1", endpoint);
    CHECK_THAT(op_recv(&unused, server, &byte, 1, TAG_UNUSED), ==, 0);
    while ((what = (int)pair_hear(side, "do")) != DO_END) {
        int64_t size = hear(side, "size"), begin = now_ms(), longest = 0;
        struct exchange exchange;
        int code;

        if (what == DO_CANCEL) {
            cancel_a_get(server, size);
        } else {
            (what == DO_GET ? begin_get : begin_put)(&exchange, server, size);
            longest = ask_meanwhile(server, &exchange, 0);
            code = end_exchange(&exchange);
            if (code != 0)
                FAIL("%d bytes: %s", (int)size, code_text(code));
        }
        tell(side, "took", now_ms() - begin);
        tell(side, "longest", longest);
        CHECK(!op_done(&unused));
    }
    CHECK_THAT(ops->cancel(unused.id, 0), ==, 0);
    op_failed(&unused, BMI_ECANCEL);
    CHECK_THAT(host_registered(), ==, 0);
    tell(side, "warnings", log_count());
    host_stop();
}

int64_t order(struct child *relay, enum order what, int64_t value)
{
    child_tell(relay, "order", what);
    child_tell(relay, "value", value);
    return child_hear(relay, "is");
}

void have_done(const struct scene *scene, enum bulk_order what, int64_t size, int ms)
{
    child_tell(scene->client, "do", what);
    child_tell(scene->client, "size", size);
    CHECK_THAT(child_hear_within(scene->client, "took", 2 * WAIT_MS), <=, ms * slower());
    CHECK_THAT(child_hear(scene->client, "longest"), <=, SMALL_MS * slower());
}

void end_client(const struct scene *scene, int warnings)
{
    child_tell(scene->client, "do", DO_END);
    CHECK_THAT(child_hear(scene->client, "warnings"), ==, warnings);
    child_end(scene->client);
    order(scene->relay, END, 0);
    child_end(scene->relay);
}

int64_t spawn_relay(struct world *world, struct scene *scene)
{
    int64_t number = child_hear(scene->server, "serving");

    scene->relay = spawn(world, "relay");
    child_tell(scene->relay, "server", number);
    return child_hear(scene->relay, "listens");
}

int64_t connections_of(const struct scene *scene)
{
    return order(scene->relay, TELL_CONNECTIONS, 0);
}

int64_t bytes_of(const struct scene *scene)
{
    return order(scene->relay, TELL_BYTES, 0);
}

void await_data_link(const struct scene *scene)
{
    int64_t before = bytes_of(scene);

    UNTIL (bytes_of(scene) > before + LARGE)
        have_done(scene, DO_GET, LARGE, BULK_MS);
}

void end_scene(const struct scene *scene)
{
    end_client(scene, 0);
    end_service(scene->server, 1);
}
