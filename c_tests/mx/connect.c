/*
 * Connecting and parting: keys, absent and unknown endpoints, restarts, contexts, names of peers.
 *
 *     mx_connect   returns a code           mx_iconnect   completes with a status
 *       MX_BAD_CONNECTION_KEY     wrong key       MX_STATUS_BAD_KEY
 *       MX_CONNECTION_FAILED      not open        MX_STATUS_ENDPOINT_CLOSED
 *       MX_BAD_ENDPOINT_ID        no such id      MX_STATUS_BAD_ENDPOINT
 *       MX_TIMEOUT                no answer       MX_STATUS_TIMEOUT
 *       MX_NIC_NOT_FOUND          no such host    (immediate)
 */
#include "support/party.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static const uint64_t NO_NIC = UINT64_C(0x0123456789ab);
static const uint64_t TOO_LONG = UINT64_C(1) << 48; /* a NIC id has 48 bits */
static const uint32_t NO_ID = 70000; /* ids are TCP ports */

static mx_status_t iconnect(mx_endpoint_t ep, uint32_t id, uint32_t key)
{
    mx_request_t request = NULL;
    static int token;
    mx_status_t status;

    OK(mx_iconnect(ep, local_nic(), id, key, 0xabc0, &token, &request));
    CHECK(request != NULL);
    status = finish(ep, request);
    CHECK_THAT(status.match_info, ==, 0xabc0);
    CHECK(status.context == &token);
    return status;
}

/* Returns a free endpoint id of this program's block. */
static uint32_t free_id(void)
{
    mx_endpoint_t ep = open_any();
    uint32_t id = id_of(ep);

    OK(mx_close_endpoint(ep));
    return id;
}

/* ---- codes ---- */

static void connects_are_refused(struct side *side)
{
    mx_endpoint_t ep = party_open(), other = open_any();
    uint32_t absent = free_id(), id = id_of(other);
    mx_endpoint_addr_t address, before;
    mx_request_t request = (mx_request_t)&address, was = request;
    mx_status_t status;
    uint64_t nic = local_nic();
    uint32_t timeout = (uint32_t)(WAIT_MS * slower());

    memset(&address, 0x3c, sizeof address);
    before = address;
    REFUSED(mx_connect(ep, nic, id, KEY + 1, timeout, &address), MX_BAD_CONNECTION_KEY);
    REFUSED(mx_connect(ep, nic, id, 0, timeout, &address), MX_BAD_CONNECTION_KEY);
    REFUSED(mx_connect(ep, nic, absent, KEY, timeout, &address), MX_CONNECTION_FAILED);
    REFUSED(mx_connect(ep, nic, NO_ID, KEY, timeout, &address), MX_BAD_ENDPOINT_ID);
    REFUSED(mx_connect(ep, nic, MX_ANY_ENDPOINT, KEY, timeout, &address), MX_BAD_ENDPOINT_ID);
    REFUSED(mx_connect(ep, NO_NIC, id, KEY, timeout, &address), MX_NIC_NOT_FOUND);
    REFUSED(mx_connect(ep, 0, id, KEY, timeout, &address), MX_NIC_NOT_FOUND);
    REFUSED(mx_connect(ep, TOO_LONG | nic, id, KEY, timeout, &address), MX_NIC_NOT_FOUND);
    REFUSED(mx_connect(ep, nic, id, KEY, timeout, NULL), MX_FAILURE);
    CHECK(same_address(address, before));

    REFUSED(mx_iconnect(ep, NO_NIC, id, KEY, 1, NULL, &request), MX_NIC_NOT_FOUND);
    REFUSED(mx_iconnect(ep, TOO_LONG, id, KEY, 1, NULL, &request), MX_NIC_NOT_FOUND);
    CHECK(request == was);
    /* The handler is told each failure with the code that mx_connect returns. */
    status = iconnect(ep, id, KEY + 1);
    STATUS_IS(status, MX_STATUS_BAD_KEY);
    CHECK(errors.count == 1 && errors.code == MX_BAD_CONNECTION_KEY);
    status = iconnect(ep, absent, KEY);
    STATUS_IS(status, MX_STATUS_ENDPOINT_CLOSED);
    CHECK(errors.count == 1 && errors.code == MX_CONNECTION_FAILED);
    status = iconnect(ep, NO_ID, KEY);
    STATUS_IS(status, MX_STATUS_BAD_ENDPOINT);
    CHECK(errors.count == 1 && errors.code == MX_BAD_ENDPOINT_ID);
    status = iconnect(ep, id, KEY);
    STATUS_IS(status, MX_STATUS_SUCCESS);
    CHECK_THAT(errors.count, ==, 0);
    exchange(ep, status.source, other, 100, 5);
    OK(mx_close_endpoint(other));
    party_close(ep);
}

/* ---- contents of an address ---- */

static void addresses_tell_who_it_is(struct side *side)
{
    struct pair pair = pair_open(side);
    uint64_t nic = 0;
    uint32_t id = 0, session = 0, again = 0, own = 0;
    mx_status_t status;
    mx_request_t request;

    OK(mx_decompose_endpoint_addr(pair.peer, &nic, &id));
    CHECK(nic == local_nic());
    CHECK_THAT(id, ==, pair.peer_id);
    OK(mx_decompose_endpoint_addr2(pair.peer, &nic, &id, &session));
    CHECK(nic == local_nic());
    CHECK_THAT(id, ==, pair.peer_id);
    OK(mx_decompose_endpoint_addr2(address_of(pair.ep), &nic, &id, &own));
    CHECK(nic == local_nic());
    CHECK_THAT(id, ==, pair.id);
    CHECK(own != session);
    /* The source of a message has the same contents. */
    request = send_to(pair.ep, pair.peer, &own, sizeof own, 1);
    status = succeed(pair.ep, receive(pair.ep, &again, sizeof again, 1, EXACTLY), sizeof again);
    CHECK(same_address(status.source, pair.peer));
    CHECK_THAT(again, ==, session); /* the number that the peer sends as its own */
    succeed(pair.ep, request, sizeof own);
    pair_close(&pair);
}

/* First message of programs of that time, which named the sender so that it could be called back. */
struct name {
    uint16_t nic_high16;
    uint16_t endpoint_id;
    uint32_t nic_low32;
};

static struct name name_of(mx_endpoint_addr_t address)
{
    struct name name;
    uint64_t nic;
    uint32_t id;

    OK(mx_decompose_endpoint_addr(address, &nic, &id));
    name.nic_low32 = (uint32_t)(nic & UINT32_MAX);
    name.nic_high16 = (uint16_t)(nic >> 32);
    name.endpoint_id = (uint16_t)id;
    return name;
}

static mx_endpoint_addr_t call_back(mx_endpoint_t ep, struct name name)
{
    uint64_t nic = (uint64_t)name.nic_high16 << 32 | name.nic_low32;
    uint32_t timeout = (uint32_t)(WAIT_MS * slower());
    mx_endpoint_addr_t address;

    OK(mx_connect(ep, nic, name.endpoint_id, KEY, timeout, &address));
    return address;
}

static void ids_pass_in_two_halves(struct side *side)
{
    mx_endpoint_t a = party_open(), b = open_any();
    struct name own = name_of(address_of(a)), caller;
    uint64_t nics[64];
    uint32_t boards;

    OK(mx_get_info(NULL, MX_NIC_COUNT, NULL, 0, &boards, sizeof boards));
    CHECK(boards > 0 && boards < 64);
    OK(mx_get_info(NULL, MX_NIC_IDS, NULL, 0, nics, (boards + 1) * (uint32_t)sizeof *nics));
    for (uint32_t board = 0; board < boards; board++)
        CHECK(nics[board] != 0 && nics[board] >> 48 == 0);
    succeed(a, send_to(a, connect_to(a, id_of(b)), &own, sizeof own, 1), sizeof own);
    succeed(b, receive(b, &caller, sizeof caller, 1, EXACTLY), sizeof caller);
    exchange(b, call_back(b, caller), a, 1000, 2);
    OK(mx_close_endpoint(b));
    party_close(a);
}

/* ---- disconnect ---- */

static void disconnect_ends_everything(struct side *side)
{
    mx_endpoint_t a = party_open(), b = open_any();
    mx_endpoint_addr_t to_b = connect_to(a, id_of(b)), fresh;
    char *large = fenced(200000), *in = fenced(200000);
    mx_request_t sends[3], receiving, connecting;
    mx_status_t status;
    uint32_t result = 77, session, id;
    uint64_t nic;
    void *context;

    OK(mx_set_endpoint_addr_context(to_b, large));
    /* An unexpected message of b waits here. */
    succeed(b, send_to(b, connect_to(b, id_of(a)), large, 100, 9), 100);
    probe_for(a, 9, EXACTLY);
    receiving = receive(a, in, 100, 10, EXACTLY);
    sends[0] = send_to(a, to_b, large, 200000, 1);
    sends[1] = ssend_to(a, to_b, large, 10, 2);
    stays_pending(a, &sends[1], 20);
    OK(mx_disconnect(a, to_b));
    for (int i = 0; i < 2; i++) {
        status = finish(a, sends[i]);
        STATUS_IS(status, MX_STATUS_ENDPOINT_UNREACHABLE);
        CHECK(errors.count == 1 && errors.code == MX_CONNECTION_FAILED);
    }
    OK(mx_iprobe(a, 9, EXACTLY, &status, &result));
    CHECK_THAT(result, ==, 0); /* thrown away */
    /* The address is no longer valid. */
    REFUSED(mx_set_endpoint_addr_context(to_b, large), MX_BAD_ENDPOINT);
    REFUSED(mx_get_endpoint_addr_context(to_b, &context), MX_BAD_ENDPOINT);
    REFUSED(mx_decompose_endpoint_addr(to_b, &nic, &id), MX_BAD_ENDPOINT);
    REFUSED(mx_decompose_endpoint_addr2(to_b, &nic, &id, &session), MX_BAD_ENDPOINT);
    sends[2] = send_to(a, to_b, large, 10, 3);
    status = finish(a, sends[2]);
    STATUS_IS(status, MX_STATUS_ENDPOINT_UNREACHABLE);
    /* A receive accepts any peer, so it keeps waiting; a later connect begins a new session. */
    CHECK(!is_done(a, &receiving, &status));
    OK(mx_iconnect(a, local_nic(), id_of(b), KEY, 0, NULL, &connecting));
    status = finish(a, connecting);
    STATUS_IS(status, MX_STATUS_SUCCESS);
    fresh = status.source;
    CHECK(!same_address(fresh, to_b));
    OK(mx_get_endpoint_addr_context(fresh, &context));
    CHECK(context == NULL);
    exchange(a, fresh, b, 1000, 4);
    exchange(b, connect_to(b, id_of(a)), a, 100, 11);
    OK(mx_cancel(a, &receiving, &result));
    CHECK_THAT(result, ==, 1);
    OK(mx_close_endpoint(b));
    party_close(a);
    fenced_free(large);
    fenced_free(in);
}

/* ---- restart ---- */

static void short_life(struct side *side)
{
    mx_endpoint_t ep = NULL;
    uint32_t id = (uint32_t)hear(side, "id");
    mx_request_t request;
    char in[8];

    party_start();
    OK(mx_open_endpoint(MX_ANY_NIC, id, KEY, NULL, 0, &ep));
    tell(side, "id", id_of(ep));
    request = receive(ep, in, 8, 1, EXACTLY);
    succeed(ep, request, 8);
    tell(side, "received", 0);
    hear(side, "close");
    party_close(ep);
}

static void survivor(struct side *side)
{
    mx_endpoint_t ep = party_open();
    uint32_t sessions[3], id = MX_ANY_ENDPOINT;
    mx_endpoint_addr_t first = {{0, 0}}, address;
    mx_status_t status;
    int mine;

    for (int life = 0; life < 3; life++) {
        uint64_t nic;
        void *context = NULL;

        id = (uint32_t)hear(side, "id");
        address = connect_to(ep, id);
        OK(mx_decompose_endpoint_addr2(address, &nic, &id, &sessions[life]));
        for (int before = 0; before < life; before++)
            CHECK(sessions[before] != sessions[life]);
        if (life == 0) {
            first = address;
            OK(mx_set_endpoint_addr_context(address, &mine));
        } else {
            /* The same peer, by its host and id, whatever its session. */
            CHECK(same_address(first, address));
            OK(mx_get_endpoint_addr_context(address, &context));
            CHECK(context == &mine);
        }
        succeed(ep, send_to(ep, address, "message", 8, 1), 8);
        tell(side, "sent", 0);
        hear(side, "gone");
        /* The restart is noticed, and later sends fail instead of reaching another peer. */
        for (deadline_t deadline = deadline_in(WAIT_MS);;) {
            mx_request_t request = ssend_to(ep, address, "message", 8, 2);

            status = finish(ep, request);
            if (status.code != MX_STATUS_SUCCESS)
                break;
            CHECK(!deadline_over(deadline));
        }
        /* Over some ports a killed process is merely silent, and the send times out. */
        if (status.code != MX_STATUS_ENDPOINT_UNREACHABLE &&
            status.code != MX_STATUS_ENDPOINT_CLOSED &&
            !(status.code == MX_STATUS_TIMEOUT && life == 1 && death_is_silent()))
            FAIL("a send to a peer that is gone: %s", status_text(status.code));
        tell(side, "noticed", 0);
    }
    party_close(ep);
}

/* Connects to each life of a peer, without a call in between that could report the end of the life before. */
static void connects_to_each_life(struct side *side)
{
    mx_endpoint_t ep = party_open();

    for (int life = 0; life < 3; life++) {
        mx_endpoint_addr_t address = connect_to(ep, (uint32_t)hear(side, "id"));

        succeed(ep, send_to(ep, address, "message", 8, 1), 8);
        tell(side, "sent", 0);
    }
    party_close(ep);
}

static void restarts(struct world *world)
{
    struct child *survivor = spawn(world, "survivor");
    bool notices = variant_of(world) != 0;
    int64_t id = MX_ANY_ENDPOINT;

    for (int life = 0; life < 3; life++) {
        struct child *child = spawn(world, "short");

        child_tell(child, "id", id);
        id = child_hear(child, "id");
        child_tell(survivor, "id", id);
        child_hear(survivor, "sent");
        child_hear(child, "received");
        if (life == 1) {
            child_kill(child);
        } else {
            child_tell(child, "close", 0);
            child_end(child);
        }
        if (notices) {
            child_tell(survivor, "gone", 0);
            child_hear(survivor, "noticed");
        }
    }
    child_end(survivor);
}

/* ---- both at once, and many ---- */

/* An endpoint that may not use shared memory connects to one that may, and the reverse. */
static void exchanges_both_ways(struct side *side)
{
    struct pair pair = pair_open(side);

    for (uint64_t i = 0; i < 3; i++) {
        char out[1000], in[1000];
        mx_request_t receiving = receive(pair.ep, in, sizeof in, i, EXACTLY), sending;

        fill(out, sizeof out, pair.id + i);
        sending = send_to(pair.ep, pair.peer, out, sizeof out, i);
        succeed(pair.ep, receiving, sizeof in);
        check_filled(in, sizeof in, pair.peer_id + i);
        succeed(pair.ep, sending, sizeof out);
    }
    pair_close(&pair);
}

static void without_shared_memory(struct side *side)
{
    setenv("MX_PORT", "auto", 1);
    setenv("MX_DISABLE_SHMEM", "1", 1);
    exchanges_both_ways(side);
}

static void with_shared_memory(struct side *side)
{
    setenv("MX_PORT", "auto", 1);
    exchanges_both_ways(side);
}

/* ---- reasons ---- */

/* An unrelated program listens there, and does not answer. */
static void says_no_process_only_where_there_is_none(struct side *side)
{
    mx_endpoint_t ep = party_open();
    uint32_t silent = free_id(), timeout = (uint32_t)(WAIT_MS * slower());
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in name = {.sin_family = AF_INET};
    mx_endpoint_addr_t address;

    name.sin_addr.s_addr = htonl(INADDR_ANY);
    name.sin_port = htons((uint16_t)((uint32_t)atoi(getenv("MX_PORT_BASE")) + silent));
    REFUSED(mx_connect(ep, local_nic(), silent, KEY, timeout, &address), MX_CONNECTION_FAILED);
    CHECK(strstr(errors.text, "no process has that endpoint open") != NULL);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    CHECK(bind(fd, (struct sockaddr *)&name, sizeof name) == 0 && listen(fd, 1) == 0);
    if (!port_is("local")) {
        REFUSED(mx_connect(ep, local_nic(), silent, KEY, 300, &address), MX_TIMEOUT);
        CHECK(strstr(errors.text, "no process") == NULL);
    }
    close(fd);
    party_close(ep);
}

/* Accepts one peer only. */
static void host_of_one(struct side *side)
{
    mx_endpoint_t ep;

    setenv("MX_MAX_REMOTES", "1", 1);
    ep = party_open();
    tell(side, "id", id_of(ep));
    while (!heard_anything(side))
        OK(mx_progress(ep));
    hear(side, "over");
    party_close(ep);
}

static void two_guests(struct side *side)
{
    uint32_t id = (uint32_t)hear(side, "id");
    mx_endpoint_t first = party_open(), second = open_any();
    mx_endpoint_addr_t address;

    connect_to(first, id);
    /* Over dgram, connects beyond the limit are not answered. */
    if (port_is("dgram"))
        REFUSED(mx_connect(second, local_nic(), id, KEY, 300, &address), MX_TIMEOUT);
    else
        REFUSED(mx_connect(second, local_nic(), id, KEY, (uint32_t)(WAIT_MS * slower()), &address),
                MX_NO_RESOURCES);
    CHECK(strstr(errors.text, "no process") == NULL);
    tell(side, "over", 0);
    OK(mx_close_endpoint(second));
    party_close(first);
}

PARTY_TESTS(
    SOLO(connects_are_refused_with_the_code_that_says_why, connects_are_refused),
    PAIR(addresses_tell_nic_endpoint_and_session, addresses_tell_who_it_is,
         addresses_tell_who_it_is),
    SOLO(nic_ids_have_48_bits_and_pass_in_two_halves, ids_pass_in_two_halves),
    SOLO(disconnect_ends_what_is_under_way_and_the_address, disconnect_ends_everything),
    DIRECTED_OF(a_restarted_peer_keeps_its_context_and_shows_a_new_session, true, restarts,
                {"survivor", survivor}, {"short", short_life}),
    DIRECTED_OF(a_peer_whose_end_was_not_noticed_is_connected_to_again, false, restarts,
                {"survivor", connects_to_each_life}, {"short", short_life}),
    SOLO(only_a_closed_endpoint_is_reported_as_refused,
         says_no_process_only_where_there_is_none),
    PAIR(a_peer_that_has_no_room_says_so, host_of_one, two_guests),
    PAIR(shared_memory_can_be_forgone, without_shared_memory, with_shared_memory))
