/*
 * A small BMI host: what OrangeFS's bmi.c does around a method, and nothing else.
 *
 *     test ──► host_* ──► ops table ──► library
 *                ▲                         │ bmi_method_addr_reg_callback
 *                └── address list ◄────────┘ bmi_method_addr_forget_callback
 *
 * One per process, like the real host. It keeps the list of addresses, patches and checks their fields as bmi.c
 * does, drops them after finalize (docs/hosts.md, Starting and ending), and records every violation of the rules
 * there and under Threads, for host_stop() to report: addresses registered twice, registered although looked up,
 * or registered outside a test call; unexpected messages from addresses that the host does not know.
 *
 * Owns: the address list, messages taken from testunexpected and not yet freed. Knows nothing of: processes, a
 * test's expectations.
 */
#ifndef C_TESTS_HOST_H
#define C_TESTS_HOST_H

#include "bmi.h"

enum {
    METHOD_ID = 3, /* the host's index of the method: not 0, so that a forgotten one shows */
    ADDRESS_SIZE = 300,
};

/* An unexpected message, as testunexpected returned it. */
struct arrival {
    struct bmi_method_addr *from;
    void *buffer;
    bmi_size_t size;
    bmi_msg_tag_t tag;
    bmi_error_code_t error;
};

/* ---- life ---- */

extern const struct bmi_method_ops *ops; /* set by the first host_ call */

void host_load(void);
/* Initializes as a server on an unused endpoint id >= 1024, found by trying; opens context 0 and returns the
 * endpoint id. */
int host_start_server(void);
/* Initializes on the given endpoint, or address; returns the method's result. On failure the address has been
 * dropped again. Opens no context. */
int host_try_server(int endpoint);
int host_try_listen(const char *text);
/* Initializes on the given endpoint, which must be free, or on an unused one for 0; returns it. Opens context 0. */
int host_serve_at(int64_t endpoint);
/* Initializes as a client, opens context 0. */
void host_start_client(void);
/* Calls close_context, finalize, DROP_ADDR of every address; then reports violations. */
void host_stop(void);
/* The address that this process listens on. */
struct bmi_method_addr *host_listen_address(void);

/* ---- addresses ---- */

/* method_addr_lookup with the checks of the real host; NULL if it returns NULL. */
struct bmi_method_addr *host_lookup(const char *text);
/* Looks up "mx://localhost:0:<endpoint>", which must succeed; with C_TESTS_STRICT a peer's is
 * "mx://<port>@localhost:0:<endpoint>". */
struct bmi_method_addr *host_lookup_endpoint(int endpoint);
/* set_info(BMI_DROP_ADDR). */
void host_drop(struct bmi_method_addr *address);
/* Returns the answer of BMI_DROP_ADDR_QUERY. */
bool host_may_drop(struct bmi_method_addr *address);
/* Gives back one reference that an unexpected message holds (BMI_DEC_ADDR_REF): asks BMI_DROP_ADDR_QUERY, and
 * drops the address if the answer allows it. Returns whether it did. */
bool host_release(struct bmi_method_addr *address);
/* Return the number of addresses that the library has registered, and of all that are not dropped. */
int host_registered(void);
int host_addresses(void);
/* Returns the calls of the forget callback with this address's name. */
int host_forgotten_of(const struct bmi_method_addr *address);

/* ---- progress ---- */

/* One round of a server's loop: testunexpected, then testcontext(context 0). */
void host_pump(int idle_ms);
/* Calls testcontext alone; records the completions (see op.h) and returns their number. */
int host_testcontext(int incount, bmi_context_id context, int idle_ms);
/* Calls testunexpected alone; queues the messages and returns their number. */
int host_testunexpected(int incount, int idle_ms);
/* Returns the oldest message not yet taken; polls for it. Fails the test after WAIT_MS. */
struct arrival host_next(void);
/* Likewise, without failing: false if none came in time. */
bool host_next_within(struct arrival *arrival, int ms);
/* Takes the oldest message, which must have that tag, and frees it; returns its sender. */
struct bmi_method_addr *host_take(bmi_msg_tag_t tag);
/* Tells whether a message is queued. Makes no call. */
bool host_waiting(void);
/* Calls unexpected_free. */
void arrival_free(struct arrival *arrival);

/* Allows callbacks from now on, for tests that call a test entry point directly. */
void host_enter_test_call(void);
void host_leave_test_call(void);

#endif
