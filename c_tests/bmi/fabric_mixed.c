/*
 * Two sides that chose different providers: each learns that from the other's endpoint address, logs it once, and
 * talks over TCP.
 *
 *     C_TESTS_PROVIDERS=tcp,tcp;ofi_rxm     the provider of side a, and that of side b
 *
 * Run by `make check-fabric`, where two providers can be used.
 */
#include "../support/log.h"
#include "../support/pair.h"

/* Makes one of the two providers this process's choice, and returns the other. */
static const char *choose(bool first)
{
    static char both[256];
    const char *given = getenv("C_TESTS_PROVIDERS");
    char *comma;

    CHECK(given != NULL);
    snprintf(both, sizeof both, "%s", given);
    comma = strchr(both, ',');
    CHECK(comma != NULL);
    *comma = '\0';
    setenv("MX_PROVIDER", first ? both : comma + 1, 1);
    return first ? comma + 1 : both;
}

static void serves(struct side *side)
{
    log_take();
    choose(true);
    pair_exchange(pair_server(side), 300000, 1);
    pair_part(side);
}

static void is_served(struct side *side)
{
    const char *other;

    log_take();
    other = choose(false);
    pair_exchange(pair_client(side), 300000, 1);
    /* The line names both providers. */
    log_one(0, other, getenv("MX_PROVIDER"), "falling back");
    pair_part(side);
}

TESTS(
    PAIR(peers_that_chose_different_providers_talk_over_tcp, serves, is_served))
