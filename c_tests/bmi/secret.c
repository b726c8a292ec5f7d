/*
 * A site's secret (MX_SECRET_FILE): only processes that know it are peers.
 *
 *     server ── its file           client ── its file, another, or none
 *
 * Each side writes a file of its own, and deletes it once the library has read it.
 */
#include "../support/pair.h"
#include "../support/secret_file.h"

enum { NONE, OURS, ANOTHER };

/* The secret of a side, by its variant. */
static const char *const secrets[] = {NULL, "one and the same for all", "something else altogether"};

/* ---- both sides know the secret ---- */

/* Exchanges messages; `meet` is pair_server or pair_client. The variant is the file's mode. */
static void knowing(struct side *side, struct bmi_method_addr *(*meet)(struct side *))
{
    secret_file(secrets[OURS], (mode_t)side->variant);
    meet(side);
    secret_file_gone();
    pair_part(side);
}

static void knowing_server(struct side *side) { knowing(side, pair_server); }
static void knowing_client(struct side *side) { knowing(side, pair_client); }

/* ---- different secrets ---- */

/* A server that accepts no peer. */
static void lonely(struct side *side)
{
    secret_file(secrets[side->variant], 0600);
    pair_serve(side);
    secret_file_gone();
    pair_hear(side, "refused");
    CHECK(!host_waiting());
    tell(side, "stop", 0);
    host_stop();
}

/* A client that is rejected, and learns it at once, each time. */
static void unwanted(struct side *side)
{
    struct bmi_method_addr *server;

    secret_file(secrets[side->variant], 0600);
    server = pair_join(side);
    secret_file_gone();
    for (int attempt = 0; attempt < 3; attempt++) {
        struct op request = {0};
        int64_t before = now_ms();

        op_send_unexpected(&request, server, "hello", 5, 1);
        CHECK_THAT(op_code(&request), ==, -BMI_EACCES);
        CHECK_THAT(now_ms() - before, <, WAIT_MS / 2 * slower());
    }
    tell(side, "refused", 0);
    pair_hear(side, "stop");
    host_stop();
}

/* ---- a file that others can read ---- */

static void readable_by_all(struct side *side)
{
    static const mode_t modes[] = {0644, 0640, 0604, 0660};

    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        secret_file(secrets[OURS], modes[i]);
        CHECK_THAT(host_try_server(3000 + (int)i), ==, -BMI_EINVAL);
        secret_file_gone();
    }
    CHECK(setenv("MX_SECRET_FILE", "/nowhere/at/all", 1) == 0);
    CHECK_THAT(host_try_server(3000), ==, -BMI_EINVAL);
}

TESTS_AFTER(port_notices_deaths_soon(),
    PAIR_OF(who_knows_the_secret_gets_in, 0600, knowing_server, 0400, knowing_client),
    PAIR_OF(who_has_none_does_not, OURS, lonely, NONE, unwanted),
    PAIR_OF(who_has_another_does_not, OURS, lonely, ANOTHER, unwanted),
    PAIR_OF(who_has_none_is_not_believed_when_called, NONE, lonely, OURS, unwanted),
    SOLO(a_file_that_others_can_read_starts_nothing, readable_by_all))
