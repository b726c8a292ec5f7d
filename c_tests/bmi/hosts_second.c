/* See hosts_second.h. */
#include "../support/host.h"
#include "../support/op.h"
#include "../support/pattern.h"

#include "hosts_second.h"

static const void *table;
static struct bmi_method_addr *server;

#ifdef BMI_MX_STANDALONE
#undef bmi_method_ops
const struct bmi_method_ops *the_table(void)
{
    return table;
}
#else
const struct bmi_method_ops *the_ops(void)
{
    return table;
}
#endif

static void use(const void *its_table)
{
    table = its_table;
}

static void join(int endpoint)
{
    host_start_client();
    server = host_lookup_endpoint(endpoint);
}

/* Returns sizes from one byte to a message of many packets. */
static size_t size_of(int turn)
{
    return turn % 4 == 3 ? 300000 + (size_t)turn : (size_t)(turn % 4) * 1500 + 1;
}

static void answer(int turns)
{
    for (int i = 0; i < turns; i++) {
        struct arrival arrival = host_next();
        char *data = fenced(size_of(i));

        CHECK_THAT(arrival.size, ==, 100 + i);
        check_filled(arrival.buffer, (size_t)arrival.size, (uint64_t)i);
        fill(data, size_of(i), (uint64_t)i + 1);
        send_message(arrival.from, data, (bmi_size_t)size_of(i), arrival.tag);
        arrival_free(&arrival);
        fenced_free(data);
    }
}

static void ask(int turns)
{
    char request[1000];

    CHECK_THAT(turns, <, 900);
    for (int i = 0; i < turns; i++) {
        char *data = fenced(size_of(i));
        struct op receive = {0};

        fill(request, (size_t)(100 + i), (uint64_t)i);
        CHECK_THAT(op_recv(&receive, server, data, (bmi_size_t)size_of(i), i), >=, 0);
        send_request(server, request, 100 + i, i);
        op_received(&receive, (bmi_size_t)size_of(i));
        check_filled(data, size_of(i), (uint64_t)i + 1);
        fenced_free(data);
    }
}

extern const struct half half;

const struct half half = {use, host_start_server, join, answer, ask, host_stop};
