/* See machines.h. */
#include "machines.h"

#include <sched.h>
#include <sys/mount.h>

#include "net.h"

enum { COMMAND = 1000, NAMESPACES = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS };

/* ---- for sides ---- */

void become_machine(struct side *side)
{
    char name[32];

    CHECK(unshare(NAMESPACES) == 0);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount("none", MACHINE_FILES, "tmpfs", 0, NULL) == 0);
    snprintf(name, sizeof name, "machine%d", (int)getpid());
    CHECK(sethostname(name, strlen(name)) == 0);
    run("echo 127.0.0.1 localhost > " MACHINE_FILES "/hosts");
    run("mount --bind " MACHINE_FILES "/hosts /etc/hosts");
    run("ip link set lo up");
    tell(side, "machine", getpid());
    hear(side, "on");
}

void be_a_machine(struct side *side)
{
    become_machine(side);
    while (!heard_anything(side))
        pause_ms(20);
}

void enter_machine(struct side *side)
{
    pid_t other = (pid_t)hear(side, "machine");

    enter_namespace(other, "net");
    enter_namespace(other, "uts");
    enter_namespace(other, "mnt");
}

/* ---- for directors ---- */

void machines_begin(const char *needs)
{
    static char why[128];
    const char *missing = NULL;

    if (geteuid() != 0)
        missing = "root, to make network namespaces";
    else if (!tried("ip -V >/dev/null 2>&1") || !tried("nsenter -V >/dev/null 2>&1"))
        missing = "ip (iproute2) or nsenter (util-linux)";
    else if (!tried("unshare -n -m -u true 2>/dev/null"))
        missing = "network namespace: that takes CAP_SYS_ADMIN, CONFIG_NET_NS and a root that is a mount point";
    else if (needs != NULL && !tried("%s >/dev/null 2>&1", needs))
        missing = needs;
    if (missing != NULL) {
        snprintf(why, sizeof why, "there is no %s", missing);
        skip_test(why);
    }
    CHECK(unshare(CLONE_NEWNET) == 0);
}

struct child *machine(struct world *world, const char *role)
{
    struct child *made = spawn(world, role);

    CHECK_THAT(child_hear(made, "machine"), ==, child_pid(made));
    return made;
}

struct child *machine_shared(struct world *world, const char *role, struct child *machine)
{
    struct child *made = spawn(world, role);

    child_tell(made, "machine", child_pid(machine));
    return made;
}

void machine_on(struct child *machine)
{
    child_tell(machine, "on", 0);
}

void at(struct child *machine, const char *format, ...)
{
    char command[COMMAND];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    run("nsenter -t %d -n -m -u sh -c '%s'", (int)child_pid(machine), command);
}

void plug(struct child *machine, const char *interface, const char *network, const char *address)
{
    static int ports;
    int port = ++ports;

    run("ip link show %s >/dev/null 2>&1 || { ip link add %s type bridge && ip link set %s up; }",
        network, network, network);
    run("ip link add port%d type veth peer name %s netns %d", port, interface,
        (int)child_pid(machine));
    /* The bridge has no host: its ports need no addresses and send nothing themselves. */
    run("ip link set port%d addrgenmode none master %s up", port, network);
    if (address != NULL)
        at(machine, "ip address add %s dev %s && ip link set %s up", address, interface, interface);
}

void name_machine(struct child *machine, const char *file, const char *address, const char *name)
{
    at(machine, "{ echo 127.0.0.1 localhost; echo %s %s; } > " MACHINE_FILES "/%s", address, name, file);
}
