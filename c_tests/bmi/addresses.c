/*
 * Address strings: which are accepted, which are rejected, and which name the same session.
 *
 *     mx://host:board:endpoint    mx://host:endpoint     (host: name, IPv4, [IPv6])
 *     mx://tcp@host:endpoint      mx://host:endpoint/tcp (the port that carries it)
 *
 * docs/hosts.md: Starting and ending, Calls, and "Parsing" among the faults of the C method.
 */
#include "../support/log.h"
#include "../support/pair.h"
#include "../support/wire.h"

/* ---- tables ---- */

/* One address of each kind; the tests of src/peer_name.rs have the rest. */
static const char *const good[] = {
    "mx://localhost:3",
    "mx://localhost:0:3/\n",
    "mx://localhost:0:3/local", /* an address may name its port (docs/c-api.md) */
    "mx-zone://tcp@localhost:3",
    "tcp://a:3334,mx://tcp@b:2,ib://c:1",
    "mx://foo:0:3\n", /* as OrangeFS's test programs listen; foo need not resolve */
    "mx://[::1]:0:3",
    "mx://under_score:0:3",
    "mx://h:0:65535",
};

/* Malformed addresses, each in its own way. */
static const char *const bad[] = {
    "",
    "mx://",
    "mx:/localhost:3",
    "mx://:0:3",
#ifndef BMI_MX_STANDALONE /* the stand-alone table accepts these before initialize */
    "mx://localhost",
    "mx://[::1]",
    "mx://local host:3",
#endif
    "mx://localhost:",
    "mx://localhost:0:three",
    "mx://localhost:-1",
    "mx://localhost:+3",
    "mx://localhost:0x3",
    "mx://localhost:0:3junk",
    "mx://\xff\xfe:3",
    "mx://localhost:65536",
    "mx://localhost:4294967299",             /* 2^32 + 3 */
    "mx://localhost:0:18446744073709551619", /* 2^64 + 3 */
    "mx://[::1:3",
    "mx://,tcp://a:1",
    "mx://udp@localhost:3",
};

/* Addresses of other methods: bmi.c offers every address to every active method. */
static const char *const foreign[] = {
    "tcp://localhost:3334", "mxx://localhost:3", "localhost:3", "/mnt/pvfs2", "tcp://a:1,ib://b:2",
};

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static void accepts_good(void)
{
    for (size_t i = 0; i < COUNT(good); i++) {
        struct bmi_method_addr *address = host_lookup(good[i]);

        if (address == NULL)
            FAIL("refused: \"%s\"", good[i]);
    }
}

static void refuses_bad(void)
{
    char *text;

    CHECK(host_lookup(NULL) == NULL);
    for (size_t i = 0; i < COUNT(bad); i++)
        if (host_lookup(bad[i]) != NULL)
            FAIL("accepted: \"%s\"", bad[i]);
    for (size_t i = 0; i < COUNT(foreign); i++)
        if (host_lookup(foreign[i]) != NULL)
            FAIL("accepted: \"%s\"", foreign[i]);
    /* Too long, in each part. */
    text = malloc(100000);
    CHECK(text != NULL);
    for (size_t length = 300; length < 90000; length *= 4) {
        memcpy(text, "mx://", 5);
        memset(text + 5, 'a', length);
        strcpy(text + 5 + length, ":0:3");
        CHECK(host_lookup(text) == NULL);
        memcpy(text, "mx://localhost:", 15);
        memset(text + 15, '1', length);
        text[15 + length] = '\0';
        CHECK(host_lookup(text) == NULL);
        memset(text, ',', length);
        text[length] = '\0';
        CHECK(host_lookup(text) == NULL);
    }
    /* Every prefix of a good address, and every byte of it replaced: the parser must not crash. */
    for (size_t cut = 0; cut < strlen("mx://localhost:0:3/fs"); cut++) {
        for (int byte = 1; byte < 256; byte++) {
            struct bmi_method_addr *address;

            strcpy(text, "mx://localhost:0:3/fs");
            text[cut] = (char)byte;
            address = ops->method_addr_lookup(text);
            if (address != NULL)
                CHECK_THAT(ops->set_info(BMI_DROP_ADDR, address), ==, 0);
        }
        strcpy(text, "mx://localhost:0:3/fs");
        text[cut] = '\0';
        (void)host_lookup(text);
    }
    free(text);
}

/* Before initialize a look-up only parses; a server's first look-up comes then. */
static void before_initialize(struct side *side)
{
    accepts_good();
    refuses_bad();
    host_stop();
}

/* While the library runs. The variant: whether it runs as a server. */
static void in_a_life(struct side *side)
{
    if (side->variant)
        host_start_server();
    else
        host_start_client();
    refuses_bad();
    host_stop();
}

/* ---- each look-up returns an address of its own ---- */

static void fresh_addresses(struct side *side)
{
    struct bmi_method_addr *address[50];

    host_start_client();
    for (int i = 0; i < 50; i++) {
        address[i] = host_lookup("mx://localhost:0:3");
        CHECK(address[i] != NULL);
        for (int k = 0; k < i; k++)
            CHECK(address[k] != address[i]);
        CHECK_THAT(address[i]->method_type, ==, METHOD_ID);
    }
    for (int i = 0; i < 50; i += 2)
        host_drop(address[i]);
    host_stop();
}

/* ---- many names of one server ---- */

/* Names from index FORCED on force a port and therefore have a session of their own. */
enum { NAMES = 10, FROM_LIST = 6, FORCED = 8, SESSIONS = 2 };

static void names_of(int endpoint, char names[NAMES][ADDRESS_SIZE])
{
    char host[200] = "localhost";
    int count = 0;

    gethostname(host, sizeof host - 1);
    snprintf(names[count++], ADDRESS_SIZE, "mx://localhost:0:%d", endpoint);
    snprintf(names[count++], ADDRESS_SIZE, "mx://localhost:%d", endpoint);
    snprintf(names[count++], ADDRESS_SIZE, "mx://127.0.0.1:0:%d", endpoint);
    snprintf(names[count++], ADDRESS_SIZE, "mx://127.0.0.1:%d/", endpoint);
    snprintf(names[count++], ADDRESS_SIZE, "mx://%s:0:%d", host, endpoint);
    snprintf(names[count++], ADDRESS_SIZE, "mx://%s:%d\n", host, endpoint);
    CHECK_THAT(count, ==, FROM_LIST);
    snprintf(names[count++], ADDRESS_SIZE, "tcp://elsewhere:1,mx://localhost:0:%d", endpoint);
    snprintf(names[count++], ADDRESS_SIZE, "mx://localhost:0:%d", endpoint);
    CHECK_THAT(count, ==, FORCED);
    snprintf(names[count++], ADDRESS_SIZE, "mx://localhost:0:%d/%s", endpoint, port_name());
    snprintf(names[count++], ADDRESS_SIZE, "mx://%s@localhost:%d", port_name(), endpoint);
    CHECK_THAT(count, ==, NAMES);
}

/* Answers requests that come by several names. The variant is the number of requests for each name. A request's
 * number is its tag, and the answer repeats it. Each session is a peer, whose requests arrive in order whichever
 * name they used. */
static void answers_names(struct side *side)
{
    struct bmi_method_addr *callers[SESSIONS] = {NULL};
    int count = (int)side->variant * NAMES, last[SESSIONS] = {-1, -1};

    pair_serve(side);
    for (int i = 0; i < count; i++) {
        struct arrival arrival = host_next();
        int session = arrival.tag % NAMES >= FORCED;

        if (callers[session] == NULL)
            callers[session] = arrival.from;
        CHECK(arrival.from == callers[session]);
        CHECK(arrival.tag > last[session] && arrival.tag < count);
        last[session] = arrival.tag;
        arrival_free(&arrival);
    }
    CHECK(callers[0] != callers[1]);
    CHECK_THAT(host_registered(), ==, SESSIONS);
    for (int64_t i = 0; i < NAMES; i++)
        send_message(callers[i >= FORCED], &i, sizeof i, (bmi_msg_tag_t)(500 + i));
    pair_part(side);
}

static void calls_by_names(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");
    char names[NAMES][ADDRESS_SIZE];
    struct bmi_method_addr *address[NAMES];
    struct op receive[NAMES] = {{0}};
    int64_t numbers[NAMES];

    host_start_client();
    names_of(endpoint, names);
    for (int i = 0; i < NAMES; i++) {
        address[i] = host_lookup(names[i]);
        if (address[i] == NULL)
            FAIL("refused: %s", names[i]);
    }
    /* A list of addresses stands for the one that belongs to this method. */
    CHECK(strcmp(ops->rev_lookup_unexpected(address[FROM_LIST]), names[0]) == 0);
    for (int i = 0; i < 2 * NAMES; i++)
        send_request(address[i % NAMES], "x", 1, i);
    for (int i = 0; i < NAMES; i++)
        CHECK_THAT(op_recv(&receive[i], address[i], &numbers[i], 8, 500 + i), >=, 0);
    for (int i = 0; i < NAMES; i++) {
        op_received(&receive[i], 8);
        CHECK_THAT(numbers[i], ==, i);
    }
    pair_part(side);
}

/* Posts every operation before the connection is up. */
static void calls_by_names_early(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");
    char names[NAMES][ADDRESS_SIZE];
    struct bmi_method_addr *address[NAMES];
    struct op receive[NAMES] = {{0}}, send[NAMES] = {{0}};
    int64_t numbers[NAMES];

    host_start_client();
    names_of(endpoint, names);
    for (int i = 0; i < NAMES; i++) {
        address[i] = host_lookup(names[i]);
        CHECK(address[i] != NULL);
        CHECK_THAT(op_recv(&receive[i], address[i], &numbers[i], 8, 500 + i), >=, 0);
        CHECK_THAT(op_send_unexpected(&send[i], address[i], "x", 1, i), >=, 0);
    }
    for (int i = 0; i < NAMES; i++) {
        op_sent(&send[i]);
        op_received(&receive[i], 8);
        CHECK_THAT(numbers[i], ==, i);
    }
    pair_part(side);
}

/* ---- numbers are decimal ---- */

static void decimal_server(struct side *side)
{
    pair_serve(side);
    host_take(1);
    pair_part(side);
}

static void decimal_client(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");
    char text[ADDRESS_SIZE];
    struct bmi_method_addr *address;

    host_start_client();
    snprintf(text, sizeof text, "mx://localhost:00:0%d", endpoint);
    address = host_lookup(text);
    if (address == NULL) /* NULL is fine too; a number read as octal is not */
        address = host_lookup_endpoint(endpoint);
    send_request(address, "x", 1, 1);
    pair_part(side);
}

/* ---- the server does not exist ---- */

/* Posts to an endpoint that is not open or does not answer. The error is reported by the post or by the
 * completion, never by both, and no call hangs. */
static void expect_failure(const char *text, int error, int other)
{
    struct bmi_method_addr *address = host_lookup(text);
    struct op receive = {0}, send = {0}, unexpected = {0};
    struct op *all[] = {&receive, &send, &unexpected};
    static char buffer[50000];

    if (address == NULL)
        FAIL("refused: %s", text);
    op_recv(&receive, address, buffer, sizeof buffer, 1);
    op_send(&send, address, buffer, sizeof buffer, 1);
    op_send_unexpected(&unexpected, address, buffer, 10, 1);
    for (int i = 0; i < 3; i++) {
        int code = op_code(all[i]);

        if (code != -error && code != -other)
            FAIL("%s: operation %d gave %s", text, i, code_text(code));
    }
    for (int i = 0; i < 10; i++)
        CHECK_THAT(host_testcontext(16, 0, 1), ==, 0);
}

static void not_open(struct side *side)
{
    char text[ADDRESS_SIZE];
    int endpoint = host_start_server(); /* finds a free endpoint and closes it again */

    host_stop();
    host_start_client();
    snprintf(text, sizeof text, "mx://localhost:0:%d", endpoint);
    for (int i = 0; i < 3; i++)
        expect_failure(text, BMI_ECONNREFUSED, BMI_EHOSTDOWN);
    host_stop();
}

/* A name that cannot be resolved fails at once, in the look-up: with an address the host would try again and
 * again. */
static void unknown_host(struct side *side)
{
    log_take();
    host_start_client();
    /* RFC 6761: never resolves. */
    CHECK(the_ops()->method_addr_lookup("mx://no-such-host.invalid:0:3") == NULL);
    log_one(LOG_WARNING, "unknown host 'no-such-host.invalid' (");
    host_stop();
    log_by(NULL);
}

/* Extracts the server's address from a line of a tab file as OrangeFS does: exactly three slashes, the last one
 * before the file system's name. */
static void server_of_tab_entry(char *entry)
{
    int slashes = 0;

    for (const char *at = entry; (at = strchr(at, '/')) != NULL; at++)
        slashes++;
    CHECK_THAT(slashes, ==, 3);
    *strrchr(entry, '/') = '\0';
}

/* A socket listens at the address and never answers. Only TCP finds it. */
static void silent_address(struct side *side)
{
    char text[ADDRESS_SIZE];
    int port = 0, silent = wire_listen(&port);

    setenv("BMI_MX_CONNECT_TIMEOUT_MS", "300", 1);
    log_take();
    host_start_client();
    snprintf(text, sizeof text, "mx://tcp@localhost:%d/orangefs", port);
    server_of_tab_entry(text);
    log_forget();
    expect_failure(text, BMI_ETIMEDOUT, BMI_ETIMEDOUT);
    close(wire_accept(silent, WAIT_MS));
    log_one(LOG_WARNING, text, "no answer within 300 ms");
    host_stop();
    log_by(NULL);
    close(silent);
}

static void board_out_of_range(struct side *side)
{
    host_start_client();
    /* The board's number is checked only when an address is used. */
    expect_failure("mx://localhost:200:3", BMI_ENODEV, BMI_ENODEV);
    host_stop();
}

/* The server starts only after a first attempt has failed (fault 10: the address must not stay unusable). */
static void late_server(struct side *side)
{
    int endpoint = host_start_server();

    host_stop();
    tell(side, "endpoint", endpoint);
    hear(side, "failed");
    host_serve_at(endpoint);
    tell(side, "now", 0);
    host_take(1);
    pair_part(side);
}

static void early_client(struct side *side)
{
    struct bmi_method_addr *server = pair_join(side);
    struct op send = {0};

    op_send_unexpected(&send, server, "x", 1, 1);
    CHECK_THAT(op_code(&send), <, 0);
    tell(side, "failed", 0);
    pair_hear(side, "now");
    UNTIL (op_send_unexpected(&send, server, "x", 1, 1) >= 0 && op_code(&send) == 0)
        host_pump(5);
    pair_part(side);
}

/* ---- the peer's name ---- */

static void names_client(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    const char *name = ops->rev_lookup_unexpected(client);

    CHECK(name != NULL);
    CHECK(strncmp(name, "mx://", 5) == 0);
    /* A mask counts bits of the address; without a mask the name is compared. */
    CHECK_THAT(ops->query_addr_range(client, "mx://*", 0), ==, 1);
    CHECK_THAT(ops->query_addr_range(client, name, 0), ==, 1);
    CHECK_THAT(ops->query_addr_range(client, "mx://no*such", 0), ==, 0);
    CHECK_THAT(ops->query_addr_range(client, "mx://198.51.100.1", 32), ==, 0);
    CHECK_THAT(ops->query_addr_range(client, "mx://198.51.100.1", 24), ==, 0);
    pair_part(side);
}

/* Looks up an address that names its port, as a tab file can have it. */
static void tab_client(struct side *side)
{
    char text[ADDRESS_SIZE];
    struct bmi_method_addr *server;

    snprintf(text, sizeof text, "mx://%s@localhost:0:%d/orangefs", port_name(),
             (int)hear(side, "endpoint"));
    server_of_tab_entry(text);
    host_start_client();
    server = host_lookup(text);
    CHECK(server != NULL);
    pair_hello(server);
    pair_part(side);
}

TESTS(
    SOLO(addresses_are_parsed_before_initialize, before_initialize),
    SOLO_OF(malformed_and_foreign_addresses_give_NULL_on_a_client, false, in_a_life),
    SOLO_OF(malformed_and_foreign_addresses_give_NULL_on_a_server, true, in_a_life),
    SOLO(every_lookup_gives_an_address_of_its_own, fresh_addresses),
    PAIR_OF(names_of_one_server_are_one_session_a_forced_port_another, 2, answers_names, 0, calls_by_names),
    PAIR_OF(so_are_names_that_are_used_before_the_connect, 1, answers_names, 0, calls_by_names_early),
    PAIR(a_tab_file_can_name_the_port, only_server, tab_client),
    PAIR(numbers_are_decimal, decimal_server, decimal_client),
    SOLO(posts_to_an_endpoint_that_is_not_open_fail, not_open),
    SOLO(an_unknown_host_is_told_once_and_has_no_address, unknown_host),
    SOLO(an_address_that_answers_nothing_is_told_with_the_time, silent_address),
    SOLO(posts_to_a_board_that_is_not_there_fail, board_out_of_range),
    PAIR(a_server_that_appears_later_is_reached, late_server, early_client),
    PAIR(peers_have_names_and_address_ranges, names_client, only_client))
