/* See hostless.h. */
#include "hostless.h"

#include "ids.h"

const struct bmi_method_ops *table;

int hostless_serve(struct side *side)
{
    struct bmi_method_addr *listen = NULL;
    int endpoint = 0;

    CHECK(table != NULL);
    for (int attempt = 0; attempt < IDS && listen == NULL; attempt++) {
        char text[64];

        endpoint = ids_try(attempt);
        snprintf(text, sizeof text, "mx://localhost:0:%d", endpoint);
        listen = table->method_addr_lookup(text);
        CHECK(listen != NULL);
        listen->method_type = HOSTLESS_ID;
        if (table->initialize(listen, HOSTLESS_ID, BMI_INIT_SERVER, NULL) != 0) {
            CHECK_THAT(table->set_info(BMI_DROP_ADDR, listen), ==, 0);
            listen = NULL;
        }
    }
    CHECK(listen != NULL);
    CHECK_THAT(table->open_context(0), ==, 0);
    tell(side, "endpoint", endpoint);
    return endpoint;
}

struct bmi_method_addr *hostless_take(const char *wanted)
{
    struct bmi_method_unexpected_info info;
    int outcount = 0;

    for (deadline_t deadline = deadline_in(WAIT_MS); outcount == 0;) {
        bmi_op_id_t id;
        bmi_error_code_t error;
        bmi_size_t size;
        int completed = 0;

        CHECK(!deadline_over(deadline));
        CHECK_THAT(table->testunexpected(1, &outcount, &info, 0), >=, 0);
        if (outcount == 0)
            CHECK_THAT(table->testcontext(1, &id, &completed, &error, &size, NULL, 5, 0), >=, 0);
        CHECK_THAT(completed, ==, 0);
    }
    CHECK_THAT(info.error_code, ==, 0);
    CHECK_THAT(info.size, ==, strlen(wanted));
    CHECK(memcmp(info.buffer, wanted, strlen(wanted)) == 0);
    CHECK_THAT(table->unexpected_free(info.buffer), ==, 0);
    return info.addr;
}

struct bmi_method_addr *hostless_join(struct side *side)
{
    struct bmi_method_addr *server;
    char text[64];

    CHECK(table != NULL);
    CHECK_THAT(table->initialize(NULL, HOSTLESS_ID, 0, NULL), ==, 0);
    CHECK_THAT(table->open_context(0), ==, 0);
    snprintf(text, sizeof text, "mx://localhost:0:%d", (int)hear(side, "endpoint"));
    server = table->method_addr_lookup(text);
    CHECK(server != NULL);
    return server;
}

void hostless_say(struct bmi_method_addr *server, const char *text)
{
    bmi_op_id_t id;
    int posted = table->post_sendunexpected(&id, server, text, (bmi_size_t)strlen(text),
                                            BMI_EXT_ALLOC, 1, NULL, 0, NULL);

    CHECK(posted == 0 || posted == 1);
    for (deadline_t deadline = deadline_in(WAIT_MS); posted == 0;) {
        int outcount;
        bmi_error_code_t error;
        bmi_size_t size;

        CHECK(!deadline_over(deadline));
        CHECK_THAT(table->test(id, &outcount, &error, &size, NULL, 10, 0), >=, 0);
        if (outcount == 1) {
            CHECK_THAT(error, ==, 0);
            posted = 1;
        }
    }
}

void hostless_stop(struct bmi_method_addr *address)
{
    table->close_context(0);
    CHECK_THAT(table->finalize(), ==, 0);
    if (address != NULL)
        CHECK_THAT(table->set_info(BMI_DROP_ADDR, address), ==, 0);
}
