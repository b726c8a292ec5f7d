/* See host.h. */
#include "host.h"

#include <stdarg.h>

#include "ids.h"
#include "op.h"
#include "stacks.h"

/* The host's own record of an address; the address's `parent` points here. */
struct ref {
    struct bmi_method_addr *address;
    bool registered; /* registered by the library, not looked up */
    bool dropped;
    int count;     /* references held by unexpected messages */
    int forgotten; /* calls of the forget callback with its name */
    struct ref *next;
};

enum { BATCH = 16 };

const struct bmi_method_ops *ops;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ref *refs;
static struct bmi_method_addr *listening;
static int own_endpoint; /* set by host_try_server */
static bool running;
static int registered_count;
static int forgotten_count;
static char breaches[2048];
static struct arrival *queue; /* messages that no test has taken yet */
static size_t queued;
static size_t queue_head;
static size_t queue_room;
static _Thread_local int test_calls; /* nesting of this thread's test calls */

/* Records a violation; it may be found inside a callback, so the test fails later. */
__attribute__((format(printf, 1, 2))) static void breach(const char *format, ...)
{
    size_t used = strlen(breaches);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(breaches + used, sizeof breaches - used, format, arguments);
    va_end(arguments);
}

/* Call with `lock` held. */
static struct ref *find(const struct bmi_method_addr *address)
{
    for (struct ref *ref = refs; ref != NULL; ref = ref->next)
        if (ref->address == address && !ref->dropped)
            return ref;
    return NULL;
}

static struct ref *add(struct bmi_method_addr *address, bool registered)
{
    struct ref *ref = calloc(1, sizeof *ref);

    CHECK(ref != NULL);
    ref->address = address;
    ref->registered = registered;
    ref->next = refs;
    refs = ref;
    address->parent = (void *)ref;
    return ref;
}

/* ---- callbacks, which the library finds by dlsym because this program exports them ---- */

int64_t bmi_method_addr_reg_callback(struct bmi_method_addr *map);
int bmi_method_addr_forget_callback(int64_t address);

int64_t bmi_method_addr_reg_callback(struct bmi_method_addr *map)
{
    struct ref *ref;

    pthread_mutex_lock(&lock);
    if (test_calls == 0)
        breach("address registered outside a test call; ");
    if (find(map) != NULL)
        breach("address registered that the host already knows; ");
    if (map->method_type != METHOD_ID)
        breach("registered address has method_type %d; ", map->method_type);
    ref = add(map, true);
    registered_count++;
    pthread_mutex_unlock(&lock);
    return (int64_t)(intptr_t)ref;
}

int bmi_method_addr_forget_callback(int64_t address)
{
    bool known = false;

    pthread_mutex_lock(&lock);
    for (struct ref *ref = refs; ref != NULL && !known; ref = ref->next) {
        known = ref == (struct ref *)(intptr_t)address && !ref->dropped;
        if (known)
            ref->forgotten++;
    }
    if (!known)
        breach("forget callback for an address the host does not know; ");
    forgotten_count++;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* ---- life ---- */

void host_load(void)
{
    if (ops == NULL)
        ops = on_stacks(the_ops());
    CHECK(ops != NULL);
}

int host_try_listen(const char *text)
{
    struct bmi_method_addr *address;
    int result;

    host_load();
    address = ops->method_addr_lookup(text);
    if (address == NULL)
        FAIL("cannot look up %s", text);
    address->method_type = METHOD_ID;
    result = ops->initialize(address, METHOD_ID, BMI_INIT_SERVER | BMI_AUTO_REF_COUNT, NULL);
    if (result != 0) {
        ops->set_info(BMI_DROP_ADDR, address);
        return result;
    }
    listening = address;
    running = true;
    return 0;
}

int host_try_server(int endpoint)
{
    char text[ADDRESS_SIZE];

    snprintf(text, sizeof text, "mx://localhost:0:%d", endpoint);
    own_endpoint = endpoint;
    return host_try_listen(text);
}

int host_start_server(void)
{
    for (int attempt = 0; attempt < IDS; attempt++) {
        int endpoint = ids_try(attempt);

        if (host_try_server(endpoint) == 0) {
            CHECK_THAT(ops->open_context(0), ==, 0);
            return endpoint;
        }
    }
    FAIL("no free endpoint in %d attempts", IDS);
}

int host_serve_at(int64_t endpoint)
{
    if (endpoint == 0)
        return host_start_server();
    CHECK_THAT(host_try_server((int)endpoint), ==, 0);
    CHECK_THAT(ops->open_context(0), ==, 0);
    return (int)endpoint;
}

void host_start_client(void)
{
    host_load();
    CHECK_THAT(ops->initialize(NULL, METHOD_ID, 0, NULL), ==, 0);
    running = true;
    CHECK_THAT(ops->open_context(0), ==, 0);
}

struct bmi_method_addr *host_listen_address(void)
{
    return listening;
}

void host_stop(void)
{
    struct ref *ref, *next;

    while (queue_head < queued)
        ops->unexpected_free(queue[queue_head++].buffer);
    free(queue);
    queue = NULL;
    queued = queue_head = queue_room = 0;
    if (running) {
        ops->close_context(0);
        CHECK_THAT(ops->finalize(), ==, 0);
        running = false;
    }
    for (ref = refs; ref != NULL; ref = next) {
        next = ref->next;
        if (!ref->dropped)
            CHECK_THAT(ops->set_info(BMI_DROP_ADDR, ref->address), ==, 0);
        free(ref);
    }
    refs = NULL;
    /* The real host never drops its listen address. This host does, which keeps the leak checkers quiet and must
     * be allowed. */
    if (listening != NULL)
        CHECK_THAT(ops->set_info(BMI_DROP_ADDR, listening), ==, 0);
    listening = NULL;
    registered_count = forgotten_count = 0;
    if (breaches[0] != '\0')
        FAIL("breach of the host's rules: %s", breaches);
}

/* ---- addresses ---- */

struct bmi_method_addr *host_lookup(const char *text)
{
    struct bmi_method_addr *address;

    host_load();
    address = ops->method_addr_lookup(text);
    if (address == NULL)
        return NULL;
    if (running)
        CHECK_THAT(address->method_type, ==, METHOD_ID);
    CHECK(address != listening);
    pthread_mutex_lock(&lock);
    /* Section 4: one object for two look-ups would have two owners. */
    if (find(address) != NULL)
        breach("lookup of %s gave an address the host already owns; ", text);
    add(address, false);
    pthread_mutex_unlock(&lock);
    return address;
}

struct bmi_method_addr *host_lookup_endpoint(int endpoint)
{
    char text[ADDRESS_SIZE];
    struct bmi_method_addr *address;
    const char *port = getenv("C_TESTS_STRICT") != NULL ? getenv("MX_PORT") : NULL;

    /* A port in the process's own address would make it another name than the listen address, with a session of
     * its own. */
    if (port != NULL && (listening == NULL || endpoint != own_endpoint))
        snprintf(text, sizeof text, "mx://%s@localhost:0:%d", port, endpoint);
    else
        snprintf(text, sizeof text, "mx://localhost:0:%d", endpoint);
    address = host_lookup(text);
    if (address == NULL)
        FAIL("cannot look up %s", text);
    return address;
}

void host_drop(struct bmi_method_addr *address)
{
    struct ref *ref;

    pthread_mutex_lock(&lock);
    ref = find(address);
    CHECK(ref != NULL);
    ref->dropped = true;
    pthread_mutex_unlock(&lock);
    CHECK_THAT(ops->set_info(BMI_DROP_ADDR, address), ==, 0);
}

bool host_may_drop(struct bmi_method_addr *address)
{
    struct method_drop_addr_query query = {.addr = address, .response = -1};

    CHECK_THAT(ops->get_info(BMI_DROP_ADDR_QUERY, &query), ==, 0);
    CHECK(query.response == 0 || query.response == 1);
    return query.response == 1;
}

bool host_release(struct bmi_method_addr *address)
{
    struct ref *ref;
    int count;

    pthread_mutex_lock(&lock);
    ref = find(address);
    CHECK(ref != NULL);
    if (ref->count > 0)
        ref->count--;
    count = ref->count;
    pthread_mutex_unlock(&lock);
    if (count > 0 || !host_may_drop(address))
        return false;
    host_drop(address);
    return true;
}

int host_forgotten_of(const struct bmi_method_addr *address)
{
    struct ref *ref;
    int count;

    pthread_mutex_lock(&lock);
    ref = find(address);
    CHECK(ref != NULL);
    count = ref->forgotten;
    pthread_mutex_unlock(&lock);
    return count;
}

int host_registered(void)
{
    return registered_count;
}

int host_addresses(void)
{
    int count = 0;

    pthread_mutex_lock(&lock);
    for (struct ref *ref = refs; ref != NULL; ref = ref->next)
        count += !ref->dropped;
    pthread_mutex_unlock(&lock);
    return count;
}

/* ---- progress ---- */

void host_enter_test_call(void)
{
    test_calls++;
}

void host_leave_test_call(void)
{
    test_calls--;
}

static void enqueue(const struct bmi_method_unexpected_info *info)
{
    struct arrival arrival = {.from = info->addr,
                              .buffer = info->buffer,
                              .size = info->size,
                              .tag = info->tag,
                              .error = info->error_code};
    struct ref *ref;

    CHECK(info->error_code <= 0);
    CHECK(info->size >= 0);
    CHECK(info->addr != NULL);
    pthread_mutex_lock(&lock);
    ref = find(info->addr);
    if (ref == NULL)
        breach("unexpected message from an address the host does not know; ");
    else if (info->addr->parent != (void *)ref)
        breach("the parent of an address has changed; ");
    else
        ref->count++;
    if (queued == queue_room) {
        queue_room = queue_room == 0 ? 64 : 2 * queue_room;
        queue = realloc(queue, queue_room * sizeof *queue);
        CHECK(queue != NULL);
    }
    queue[queued++] = arrival;
    pthread_mutex_unlock(&lock);
}

int host_testunexpected(int incount, int idle_ms)
{
    struct bmi_method_unexpected_info infos[64];
    int outcount = -1;
    int result;

    CHECK(incount <= 64);
    memset(infos, 0, sizeof infos);
    host_enter_test_call();
    result = ops->testunexpected(incount, &outcount, infos, idle_ms);
    host_leave_test_call();
    CHECK_THAT(result, >=, 0);
    CHECK_THAT(outcount, >=, 0);
    CHECK_THAT(outcount, <=, incount);
    for (int i = 0; i < outcount; i++)
        enqueue(&infos[i]);
    return outcount;
}

int host_testcontext(int incount, bmi_context_id context, int idle_ms)
{
    bmi_op_id_t ids[64];
    bmi_error_code_t errors[64];
    bmi_size_t sizes[64];
    void *users[64];
    int outcount = -1;
    int result;

    CHECK(incount <= 64);
    host_enter_test_call();
    result = ops->testcontext(incount, ids, &outcount, errors, sizes, users, idle_ms, context);
    host_leave_test_call();
    CHECK_THAT(result, >=, 0);
    CHECK_THAT(outcount, >=, 0);
    CHECK_THAT(outcount, <=, incount);
    for (int i = 0; i < outcount; i++)
        op_completed(users[i], ids[i], errors[i], sizes[i], context);
    return outcount;
}

void host_pump(int idle_ms)
{
    int arrived = host_testunexpected(BATCH, 0);

    host_testcontext(BATCH, 0, arrived > 0 ? 0 : idle_ms);
}

bool host_next_within(struct arrival *arrival, int ms)
{
    deadline_t deadline = deadline_in(ms);
    bool found = false;

    for (;;) {
        pthread_mutex_lock(&lock);
        if (queue_head < queued) {
            *arrival = queue[queue_head++];
            if (queue_head == queued)
                queue_head = queued = 0;
            found = true;
        }
        pthread_mutex_unlock(&lock);
        if (found || deadline_over(deadline))
            return found;
        host_pump(5);
    }
}

bool host_waiting(void)
{
    bool waiting;

    pthread_mutex_lock(&lock);
    waiting = queue_head < queued;
    pthread_mutex_unlock(&lock);
    return waiting;
}

struct arrival host_next(void)
{
    struct arrival arrival;

    if (!host_next_within(&arrival, WAIT_MS))
        FAIL("no unexpected message came");
    CHECK_THAT(arrival.error, ==, 0);
    return arrival;
}

struct bmi_method_addr *host_take(bmi_msg_tag_t tag)
{
    struct arrival arrival = host_next();

    CHECK_THAT(arrival.tag, ==, tag);
    arrival_free(&arrival);
    return arrival.from;
}

void arrival_free(struct arrival *arrival)
{
    CHECK_THAT(ops->unexpected_free(arrival->buffer), ==, 0);
    arrival->buffer = NULL;
}
