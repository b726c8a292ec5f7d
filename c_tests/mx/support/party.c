/* See party.h. */
#include "party.h"

#include "../../support/ids.h"

enum {
    BLOCK = 1024,          /* endpoint ids that MX_PORT_BASE moves */
    FIRST_BASE = 6 * 1024, /* above the ports of usual servers */
    LAST_BASE = 27 * 1024, /* the library's default begins behind it */
};

/* ---- life ---- */

/* The process that binds the name owns the block; the kernel releases it when the process ends. */
static void claim_ids(void)
{
    char text[16];

    snprintf(text, sizeof text, "%d", claim_block(FIRST_BASE, LAST_BASE + BLOCK - 1, BLOCK));
    setenv("MX_PORT_BASE", text, 1);
}

void party_prepare(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--role") != 0)
        claim_ids();
    port_notices_deaths_soon();
}

void party_start(void)
{
    mx_set_error_handler(note_error);
    OK(mx_init());
}

void party_stop(void)
{
    OK(mx_finalize());
}

mx_endpoint_t open_any(void)
{
    mx_endpoint_t ep = NULL;

    OK(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, NULL, 0, &ep));
    CHECK(ep != NULL);
    return ep;
}

mx_endpoint_t party_open(void)
{
    party_start();
    return open_any();
}

void party_close(mx_endpoint_t ep)
{
    OK(mx_close_endpoint(ep));
    party_stop();
}

/* ---- addresses ---- */

uint64_t local_nic(void)
{
    uint64_t nic = 0;
    char name[] = "localhost";

    OK(mx_hostname_to_nic_id(name, &nic));
    return nic;
}

mx_endpoint_addr_t address_of(mx_endpoint_t ep)
{
    mx_endpoint_addr_t address;

    OK(mx_get_endpoint_addr(ep, &address));
    return address;
}

uint32_t id_of(mx_endpoint_t ep)
{
    uint64_t nic;
    uint32_t id = MX_ANY_ENDPOINT;

    OK(mx_decompose_endpoint_addr(address_of(ep), &nic, &id));
    return id;
}

mx_endpoint_addr_t connect_to(mx_endpoint_t ep, uint32_t id)
{
    mx_endpoint_addr_t address;

    OK(mx_connect(ep, local_nic(), id, KEY, (uint32_t)(WAIT_MS * slower()), &address));
    return address;
}

bool same_address(mx_endpoint_addr_t a, mx_endpoint_addr_t b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* ---- requests ---- */

static mx_segment_t one_segment(const void *buffer, size_t size)
{
    mx_segment_t segment = {.segment_ptr = (mx_segment_ptr_t)(uintptr_t)buffer,
                            .segment_length = (uint32_t)size};

    return segment;
}

mx_request_t send_to(mx_endpoint_t ep, mx_endpoint_addr_t to, const void *buffer, size_t size,
                     uint64_t bits)
{
    mx_segment_t segment = one_segment(buffer, size);
    mx_request_t request = NULL;

    OK(mx_isend(ep, &segment, 1, to, bits, (void *)(uintptr_t)buffer, &request));
    CHECK(request != NULL);
    return request;
}

mx_request_t ssend_to(mx_endpoint_t ep, mx_endpoint_addr_t to, const void *buffer, size_t size,
                      uint64_t bits)
{
    mx_segment_t segment = one_segment(buffer, size);
    mx_request_t request = NULL;

    OK(mx_issend(ep, &segment, 1, to, bits, (void *)(uintptr_t)buffer, &request));
    CHECK(request != NULL);
    return request;
}

mx_request_t receive(mx_endpoint_t ep, void *buffer, size_t size, uint64_t bits, uint64_t mask)
{
    mx_segment_t segment = one_segment(buffer, size);
    mx_request_t request = NULL;

    OK(mx_irecv(ep, &segment, 1, bits & mask, mask, buffer, &request));
    CHECK(request != NULL);
    return request;
}

bool is_done(mx_endpoint_t ep, mx_request_t *request, mx_status_t *status)
{
    uint32_t result = 77;

    OK(mx_test(ep, request, status, &result));
    CHECK(result == 0 || result == 1);
    CHECK((*request == NULL) == (result == 1));
    return result == 1;
}

mx_status_t finish(mx_endpoint_t ep, mx_request_t request)
{
    deadline_t deadline = deadline_in(2 * WAIT_MS);
    mx_status_t status;
    uint32_t result = 77;

    while (result != 1) {
        if (deadline_over(deadline))
            FAIL("a request does not complete");
        errors_begin();
        /* The handler is called for a failed request, which is not the subject here. */
        if (mx_wait(ep, &request, (uint32_t)deadline_left(deadline) + 1, &status, &result) !=
            MX_SUCCESS)
            FAIL("mx_wait: %s (%s)", return_text(errors.code), errors.text);
    }
    CHECK(request == NULL);
    return status;
}

mx_status_t succeed(mx_endpoint_t ep, mx_request_t request, size_t size)
{
    mx_status_t status = finish(ep, request);

    STATUS_IS(status, MX_STATUS_SUCCESS);
    CHECK_THAT(status.msg_length, ==, size);
    CHECK_THAT(status.xfer_length, ==, size);
    return status;
}

void stays_pending(mx_endpoint_t ep, mx_request_t *request, int ms)
{
    mx_status_t status, before;
    uint32_t result = 77;

    memset(&status, 0x5a, sizeof status);
    before = status;
    for (deadline_t deadline = deadline_in(ms); !deadline_over(deadline);) {
        if (is_done(ep, request, &status))
            FAIL("completed (%s) although it must not", status_text(status.code));
        OK(mx_wait(ep, request, 1, &status, &result));
        CHECK_THAT(result, ==, 0);
    }
    CHECK(memcmp(&status, &before, sizeof status) == 0); /* the call writes nothing */
}

mx_status_t probe_for(mx_endpoint_t ep, uint64_t bits, uint64_t mask)
{
    mx_status_t status;
    uint32_t result = 0;

    for (deadline_t deadline = deadline_in(WAIT_MS); result == 0;) {
        if (deadline_over(deadline))
            FAIL("no message with bits 0x%llx", (unsigned long long)bits);
        OK(mx_probe(ep, (uint32_t)deadline_left(deadline) + 1, bits & mask, mask, &status,
                    &result));
    }
    return status;
}

void exchange(mx_endpoint_t from, mx_endpoint_addr_t to, mx_endpoint_t at, size_t size,
              uint64_t bits)
{
    void *out = fenced(size), *in = fenced(size);
    mx_request_t receiving, sending;

    fill(out, size, bits);
    receiving = receive(at, in, size, bits, EXACTLY);
    sending = send_to(from, to, out, size, bits);
    succeed(at, receiving, size);
    succeed(from, sending, size);
    check_filled(in, size, bits);
    fenced_free(out);
    fenced_free(in);
}

/* ---- two endpoints ---- */

mx_endpoint_t a, b;
mx_endpoint_addr_t to_b;

void open_two(void)
{
    a = party_open();
    b = open_any();
    to_b = connect_to(a, id_of(b));
}

void close_two(void)
{
    OK(mx_close_endpoint(b));
    party_close(a);
}

/* ---- pairs ---- */

struct pair pair_open(struct side *side)
{
    struct pair pair = {.side = side, .ep = party_open()};

    pair.id = id_of(pair.ep);
    tell(side, "endpoint", pair.id);
    pair.peer_id = (uint32_t)hear(side, "endpoint");
    pair.peer = connect_to(pair.ep, pair.peer_id);
    return pair;
}

int64_t pair_hear(struct pair *pair, const char *word)
{
    deadline_t deadline = deadline_in(2 * WAIT_MS);
    mx_status_t status;
    uint32_t result;

    while (!heard_anything(pair->side)) {
        if (deadline_over(deadline))
            FAIL("the other side did not say '%s' in time", word);
        /* Sleeps in the library, waiting for a message that is never sent. */
        OK(mx_probe(pair->ep, 2, UINT64_C(0xdeadbeef00c0ffee), EXACTLY, &status, &result));
    }
    return hear(pair->side, word);
}

void pair_sync(struct pair *pair)
{
    tell(pair->side, "here", 0);
    pair_hear(pair, "here");
}

void pair_close(struct pair *pair)
{
    tell(pair->side, "bye", 0);
    pair_hear(pair, "bye");
    party_close(pair->ep);
}
