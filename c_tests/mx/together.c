/*
 * Both libraries in one process: the BMI method with its host, and an MX endpoint.
 *
 *     this process ── libbmi_mx.so.0 ──── BMI messages between server and client
 *                  └─ libmyriexpress.so.1 ── MX messages beside them
 *
 * Knows nothing of: the libraries' own behaviour, which their suites test.
 */
#include "../support/host.h"
#include "../support/op.h"
#include "support/party.h"

#include <dlfcn.h>

static void no_symbol_is_in_both(struct side *side)
{
    static const char *const mx[] = {"mx_isend", "mx_test", "mx__init_api", "mx_finalize",
                                     "mx_hostname_to_nic_id", "MX_ERRORS_RETURN"};
    void *bmi = dlopen("libbmi_mx.so.0", RTLD_NOW | RTLD_NOLOAD);
    void *own = dlopen("libmyriexpress.so.1", RTLD_NOW | RTLD_NOLOAD);
    Dl_info where;

    CHECK(bmi != NULL && own != NULL);
    for (size_t i = 0; i < sizeof mx / sizeof mx[0]; i++) {
        void *symbol = dlsym(bmi, mx[i]);

        /* dlsym also searches the libraries that a library depends on. */
        if (symbol != NULL && dladdr(symbol, &where) != 0 &&
            strstr(where.dli_fname, "libbmi_mx") != NULL)
            FAIL("%s is in %s", mx[i], where.dli_fname);
        CHECK(dlsym(own, mx[i]) != NULL);
    }
    CHECK(dlsym(bmi, "bmi_mx_ops") != NULL);
    CHECK(dlsym(own, "bmi_mx_ops") == NULL);
    dlclose(bmi);
    dlclose(own);
}

/* ---- side by side ---- */

enum { TURNS = 30 };

static size_t size_of(int i)
{
    return i % 5 == 3 ? 100000 : (size_t)(i * 100);
}

static void server(struct side *side)
{
    int endpoint = host_start_server();
    struct pair pair = pair_open(side);

    tell(side, "bmi", endpoint);
    for (int i = 0; i < TURNS; i++) {
        struct arrival arrival = host_next();
        char *in = fenced(size_of(i));

        CHECK_THAT(arrival.size, ==, 100 + i);
        check_filled(arrival.buffer, (size_t)arrival.size, (uint64_t)i);
        succeed(pair.ep, receive(pair.ep, in, size_of(i), (uint64_t)i, EXACTLY), size_of(i));
        check_filled(in, size_of(i), (uint64_t)i);
        succeed(pair.ep, send_to(pair.ep, pair.peer, in, size_of(i), (uint64_t)i), size_of(i));
        arrival_free(&arrival);
        fenced_free(in);
    }
    /* Each library ends by itself, and the other goes on. */
    host_stop();
    exchange(pair.ep, address_of(pair.ep), pair.ep, 100000, 1);
    pair_close(&pair);
}

static void client(struct side *side)
{
    struct pair pair = pair_open(side);
    int endpoint = (int)hear(side, "bmi");
    struct bmi_method_addr *address;

    host_start_client();
    address = host_lookup_endpoint(endpoint);
    for (int i = 0; i < TURNS; i++) {
        char request[200], *out = fenced(size_of(i)), *in = fenced(size_of(i));
        struct op send = {0};
        mx_request_t receiving = receive(pair.ep, in, size_of(i), (uint64_t)i, EXACTLY), sending;

        fill(request, (size_t)(100 + i), (uint64_t)i);
        CHECK_THAT(op_send_unexpected(&send, address, request, 100 + i, (bmi_msg_tag_t)i), >=, 0);
        fill(out, size_of(i), (uint64_t)i);
        sending = send_to(pair.ep, pair.peer, out, size_of(i), (uint64_t)i);
        op_sent(&send);
        succeed(pair.ep, sending, size_of(i));
        succeed(pair.ep, receiving, size_of(i));
        check_filled(in, size_of(i), (uint64_t)i);
        fenced_free(in);
        fenced_free(out);
    }
    pair_close(&pair);
    host_stop(); /* in the reverse order on this side */
}

PARTY_TESTS(
    SOLO(each_library_keeps_its_symbols_to_itself, no_symbol_is_in_both),
    PAIR(both_libraries_work_side_by_side_in_one_process, server, client))
