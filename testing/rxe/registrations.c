/*
 * Memory of a process that its card may access after its operations have ended: none that it could not access
 * before. The kernel keeps the list (rdma resource show mr); a message's memory is on it while the message is
 * under way.
 *
 * Side a is a server and receives, side b a client and sends.
 */
#include "../../c_tests/support/pair.h"
#include "../../c_tests/support/pattern.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 64 * 1024 * 1024, PUMPS = 40 };

/* Returns the number of this process's registrations that are as long as a message, which leaves out those that
 * the port keeps. */
static int registrations(void)
{
    char line[512], mine[32], length[32];
    int count = 0;
    FILE *list = popen("rdma resource show mr", "r");

    CHECK(list != NULL);
    snprintf(mine, sizeof mine, " pid %d ", (int)getpid());
    snprintf(length, sizeof length, " mrlen %d ", SIZE);
    while (fgets(line, sizeof line, list) != NULL)
        count += strstr(line, mine) != NULL && strstr(line, length) != NULL;
    CHECK(pclose(list) == 0);
    return count;
}

static void none(const char *when, const char *who)
{
    int left = registrations();

    printf("    %s, %s: %d registrations\n", when, who, left);
    fflush(stdout);
    CHECK_THAT(left, ==, 0);
}

static void receives(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    static char body[SIZE];
    struct op receive = {0};

    CHECK_THAT(op_recv(&receive, client, body, sizeof body, 1), >=, 0);
    op_received(&receive, sizeof body);
    check_filled(body, sizeof body, 1);
    none("completed", "receiver");
    pair_part(side);
}

static void sends(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    static char body[SIZE];
    struct op send = {0};

    fill(body, sizeof body, 1);
    CHECK_THAT(op_send(&send, server, body, sizeof body, 1), >=, 0);
    op_sent(&send);
    none("completed", "sender");
    pair_part(side);
}

static void cancels(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    static char body[SIZE];
    struct op receive = {0};
    int most = 0;

    pair_hear(side, "sent");
    CHECK_THAT(op_recv(&receive, client, body, sizeof body, 2), >=, 0);
    for (int i = 0; i < PUMPS && most == 0 && !op_done(&receive); i++) {
        host_pump(1);
        most = registrations();
    }
    /* In the middle of the message its memory is registered. */
    CHECK_THAT(most, >, 0);
    CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
    op_failed(&receive, BMI_ECANCEL);
    none("cancelled", "receiver");
    fill(body, sizeof body, 3);
    tell(side, "cancelled", 0);
    pair_hear(side, "over");
    check_filled(body, sizeof body, 3);
    pair_part(side);
}

static void sends_to_canceller(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    static char body[SIZE];
    struct op send = {0};

    CHECK_THAT(op_send(&send, server, body, sizeof body, 2), >=, 0);
    tell(side, "sent", 0);
    pair_hear(side, "cancelled");
    op_wait(&send);
    CHECK_THAT(send.error, !=, 0);
    none("cancelled", "sender");
    tell(side, "over", 0);
    pair_part(side);
}

static const struct scenario scenarios[] = {
    PAIR(a_completed_message_leaves_no_registration, receives, sends),
    PAIR(a_cancelled_receive_leaves_no_registration, cancels, sends_to_canceller),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
