/* See net.h. */
#include "net.h"

#include <sched.h>

#include "pair.h"

enum { COMMAND = 1000 };

void run(const char *format, ...)
{
    char command[COMMAND];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    if (system(command) != 0)
        FAIL("cannot do: %s", command);
}

bool tried(const char *format, ...)
{
    char command[COMMAND];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    return system(command) == 0;
}

int become_host(struct side *side)
{
    int host;

    if (unshare(CLONE_NEWNET) != 0)
        FAIL("no network namespace can be made: root, and a kernel with them, are needed");
    tell(side, "unplugged", getpid());
    host = (int)hear(side, "plugged");
    run("ip link set lo up");
    run("ip address add 198.51.100.%d/24 dev side0", host + 1);
    run("ip link set side0 up");
    return host;
}

void enter_namespace(pid_t other, const char *kind)
{
    char path[64];
    int namespace;

    snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)other, kind);
    namespace = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(namespace >= 0);
    CHECK(setns(namespace, 0) == 0);
    close(namespace);
}

struct bmi_method_addr *net_join(struct side *side, int host)
{
    char text[ADDRESS_SIZE];
    struct bmi_method_addr *address;

    host_start_client();
    snprintf(text, sizeof text, "mx://198.51.100.%d:0:%d", host + 1, (int)hear(side, "endpoint"));
    address = host_lookup(text);
    CHECK(address != NULL);
    return address;
}

void net_part(struct side *side)
{
    pair_idle(side); /* without a limit: the director has the deadline */
    hear(side, "end");
    host_stop();
}

void make_hub(void)
{
    if (geteuid() != 0)
        FAIL("check-net needs root: it makes network namespaces (CAP_SYS_ADMIN, CAP_NET_ADMIN)");
    if (!tried("ip -V >/dev/null 2>&1"))
        FAIL("check-net needs ip (iproute2)");
    if (unshare(CLONE_NEWNET) != 0)
        FAIL("no network namespace can be made: CAP_SYS_ADMIN and CONFIG_NET_NS are needed");
    run("ip link set lo up");
    run("ip link add hub type bridge");
    run("ip link set hub up");
}

const char *shaper(void)
{
    const char *path = getenv("C_TESTS_SHAPER");

    if (path == NULL)
        FAIL("C_TESTS_SHAPER does not name mx_shaper (make check-net sets it)");
    return path;
}

/* Returns the pid of the side. */
static int connect_to_hub(struct child *child, int host)
{
    int pid = (int)child_hear(child, "unplugged");

    run("ip link add port%d type veth peer name side0 netns %d", host, pid);
    /* The hub has no host: its ports need no addresses and send nothing themselves. */
    run("ip link set port%d addrgenmode none", host);
    run("ip link set port%d up", host);
    return pid;
}

static void put_on_bridge(int host)
{
    run("ip link set port%d master hub", host);
}

void plug_in(struct child *child, int host)
{
    connect_to_hub(child, host);
    put_on_bridge(host);
    child_tell(child, "plugged", host);
}

void plug_in_plain(struct child *child, int host, bool loose)
{
    int pid = connect_to_hub(child, host);

    run("nsenter -t %d -n %s --plain side0", pid, shaper());
    if (!loose)
        put_on_bridge(host);
    child_tell(child, "plugged", host);
}
