/*
 * Host names and NIC ids: DNS, numbers, boards, and the peers file for names that DNS does not have.
 *
 *     "localhost"  "own name"  "127.0.0.1"  ":board" behind any of them  ──►  NIC id  ──►  "host:board"
 */
#include "support/party.h"

static uint64_t nic_of(const char *name)
{
    char copy[256];
    uint64_t nic = 0;

    snprintf(copy, sizeof copy, "%s", name);
    OK(mx_hostname_to_nic_id(copy, &nic));
    CHECK(strcmp(copy, name) == 0);
    CHECK(nic != 0);
    return nic;
}

static void unknown(const char *name, mx_return_t code)
{
    char copy[4096];
    uint64_t nic = 77;

    snprintf(copy, sizeof copy, "%s", name);
    REFUSED(mx_hostname_to_nic_id(copy, &nic), code);
    CHECK_THAT(nic, ==, 77);
}

/* Checks that a NIC id's name leads back to it. */
static void there_and_back(uint64_t nic)
{
    char name[MX_MAX_HOSTNAME_LEN + 8];
    char *colon;

    memset(name, 'x', sizeof name);
    OK(mx_nic_id_to_hostname(nic, name));
    CHECK(memchr(name, '\0', MX_MAX_HOSTNAME_LEN) != NULL);
    for (int i = MX_MAX_HOSTNAME_LEN; i < MX_MAX_HOSTNAME_LEN + 8; i++)
        CHECK(name[i] == 'x');
    CHECK(nic_of(name) == nic);
    colon = strrchr(name, ':');
    CHECK(colon != NULL && colon[1] >= '0' && colon[1] <= '9');
}

static void this_host(struct side *side)
{
    char own[256], text[300];
    uint64_t nic, board;
    uint32_t number = 77;

    party_start();
    OK(mx_board_number_to_nic_id(0, &nic));
    CHECK(nic_of("localhost") == nic);
    CHECK(nic_of("localhost:0") == nic);
    CHECK(nic_of("127.0.0.1") == nic);
    CHECK(nic_of("127.0.0.1:0") == nic);
    CHECK(gethostname(own, sizeof own) == 0);
    CHECK(nic_of(own) == nic);
    snprintf(text, sizeof text, "%s:0", own);
    CHECK(nic_of(text) == nic);
    there_and_back(nic);
    for (uint32_t i = 0;; i++) {
        errors_begin();
        if (mx_board_number_to_nic_id(i, &board) != MX_SUCCESS) {
            CHECK(errors.code == MX_BOARD_UNKNOWN && i > 0);
            break;
        }
        snprintf(text, sizeof text, "localhost:%u", i);
        CHECK(nic_of(text) == board);
        OK(mx_nic_id_to_board_number(board, &number));
        CHECK_THAT(number, ==, i);
        there_and_back(board);
    }
    party_stop();
}

static void strange_names(struct side *side)
{
    char name[MX_MAX_HOSTNAME_LEN] = "name", too_long[3000];

    party_start();
    unknown("no-such-host.invalid", MX_HOST_NOT_FOUND);
    unknown("no-such-host.invalid:0", MX_HOST_NOT_FOUND);
    unknown("", MX_HOST_NOT_FOUND);
    unknown(":0", MX_HOST_NOT_FOUND);
    unknown("localhost:1000", MX_HOST_NOT_FOUND);
    unknown("localhost:99999999999999999999", MX_HOST_NOT_FOUND);
    unknown("localhost:x", MX_HOST_NOT_FOUND);
    unknown("localhost:-1", MX_HOST_NOT_FOUND);
    unknown("0.0.0.0", MX_HOST_NOT_FOUND);
    unknown("[::1", MX_HOST_NOT_FOUND);
    memset(too_long, 'a', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = '\0';
    unknown(too_long, MX_BAD_HOSTNAME_ARGS);
    too_long[500] = '\0';
    unknown(too_long, MX_HOST_NOT_FOUND);
    unknown("\xff\xfe", MX_BAD_HOSTNAME_ARGS);
    REFUSED(mx_nic_id_to_hostname(UINT64_C(0x0123456789abcdef), name), MX_HOST_NOT_FOUND);
    CHECK(strcmp(name, "name") == 0);
    party_stop();
}

/* ---- the peers file ---- */

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    CHECK(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK(fclose(file) == 0);
}

static void a_peers_file(struct side *side)
{
    char path[] = "/tmp/mx-peers-XXXXXX", name[MX_MAX_HOSTNAME_LEN];
    int fd = mkstemp(path);
    uint64_t far, near;

    CHECK(fd >= 0);
    close(fd);
    write_file(path, "# addresses and names\n"
                     "203.0.113.7   storage-seven.invalid  s7.invalid # of documentation\n"
                     "127.0.0.1     myself.invalid\n"
                     "not an address\n"
                     "2001:db8::5   six.invalid\n");
    setenv("MX_PEERS", path, 1);
    party_start();
    far = nic_of("storage-seven.invalid");
    CHECK(nic_of("s7.invalid") == far);
    CHECK(nic_of("s7.invalid:0") == far);
    CHECK(nic_of("203.0.113.7") == far);
    CHECK(far != local_nic());
    OK(mx_nic_id_to_hostname(far, name));
    if (strcmp(name, "storage-seven.invalid:0") != 0 && strcmp(name, "s7.invalid:0") != 0)
        FAIL("'%s' is none of its names", name);
    there_and_back(far);
    near = nic_of("myself.invalid");
    CHECK(near == local_nic());
    there_and_back(nic_of("six.invalid"));
    unknown("other.invalid", MX_HOST_NOT_FOUND);
    /* The file is read again when it has changed. */
    write_file(path, "203.0.113.8 other.invalid and-much-longer.invalid\n");
    CHECK(nic_of("other.invalid") != far);
    CHECK(nic_of("203.0.113.8") == nic_of("other.invalid"));
    /* It may be deleted. */
    CHECK(unlink(path) == 0);
    CHECK(nic_of("localhost") == local_nic());
    party_stop();
    party_start(); /* starts without the file, too */
    CHECK(nic_of("localhost") == local_nic());
    party_stop();
}

/* Connects by names. */
static void connects_by_names(struct side *side)
{
    char path[] = "/tmp/mx-peers-XXXXXX";
    int fd = mkstemp(path);
    mx_endpoint_t a, b;
    mx_endpoint_addr_t to_b;

    CHECK(fd >= 0);
    close(fd);
    write_file(path, "127.0.0.1 peer.invalid\n");
    setenv("MX_PEERS", path, 1);
    a = party_open();
    b = open_any();
    OK(mx_connect(a, nic_of("peer.invalid:0"), id_of(b), KEY, (uint32_t)(WAIT_MS * slower()),
                  &to_b));
    exchange(a, to_b, b, 1000, 1);
    CHECK(unlink(path) == 0);
    OK(mx_close_endpoint(b));
    party_close(a);
}

PARTY_TESTS(
    SOLO(all_names_of_this_host_are_one_nic_id_and_back, this_host),
    SOLO(names_that_are_none_are_refused, strange_names),
    SOLO(a_peers_file_gives_names_that_dns_does_not_know, a_peers_file),
    SOLO(names_of_the_peers_file_serve_to_connect, connects_by_names))
