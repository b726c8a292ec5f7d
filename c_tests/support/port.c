/* See port.h. */
#include "port.h"

/* A fraction of WAIT_MS. A busy machine can keep a living process off its processor for as long. */
enum { GIVE_UP_MS = 1500 };

const char *port_name(void)
{
    const char *name = getenv("MX_PORT");

    return name != NULL ? name : "auto";
}

bool port_is(const char *name)
{
    return strcmp(port_name(), name) == 0;
}

static bool backend_is_fabric(void)
{
    const char *backend = getenv("MX_DGRAM_BACKEND");

    return backend != NULL && strcmp(backend, "fabric") == 0;
}

bool port_uses_udp(void)
{
    return port_is("dgram") && !backend_is_fabric();
}

bool port_uses_libfabric(void)
{
    return port_is("rdm") || (port_is("dgram") && backend_is_fabric());
}

void set_ms(const char *name, int ms)
{
    char text[32];

    snprintf(text, sizeof text, "%d", ms);
    setenv(name, text, 1);
}

bool death_is_silent(void)
{
    return port_is("rdm") || port_is("dgram");
}

void port_notices_deaths_soon(void)
{
    if (getenv("MX_DGRAM_FAULTS") != NULL && getenv("MX_DGRAM_GIVE_UP_MS") == NULL)
        set_ms("MX_DGRAM_GIVE_UP_MS", GIVE_UP_MS * slower());
}
