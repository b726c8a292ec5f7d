/*
 * What the card may reach of a process once its operations have ended: nothing that it could not reach before. The
 * kernel keeps the list (rdma resource show mr); a message's memory is on it while the message lasts.
 *
 * Side a is a server and receives, side b a client and sends.
 */
#include "../../c_tests/support/pair.h"
#include "../../c_tests/support/pattern.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 8 * 1024 * 1024, PUMPS = 40 };

/* Registrations of this process. */
static int registrations(void)
{
    char line[512], mine[32];
    int count = 0;
    FILE *list = popen("rdma resource show mr", "r");

    CHECK(list != NULL);
    snprintf(mine, sizeof mine, " pid %d ", (int)getpid());
    while (fgets(line, sizeof line, list) != NULL)
        count += strstr(line, mine) != NULL;
    CHECK(pclose(list) == 0);
    return count;
}

static void as_many(const char *when, const char *who, int before)
{
    int after = registrations();

    printf("    %s, %s: %d registrations before, %d after\n", when, who, before, after);
    fflush(stdout);
    CHECK_THAT(after, ==, before);
}

/* A large message has gone before: what the port keeps for itself is there. */
static int warm(struct bmi_method_addr *peer, bool sends)
{
    static char body[SIZE];
    struct op op = {0};

    if (sends) {
        CHECK_THAT(op_send(&op, peer, body, sizeof body, 1), >=, 0);
        op_sent(&op);
    } else {
        CHECK_THAT(op_recv(&op, peer, body, sizeof body, 1), >=, 0);
        op_received(&op, sizeof body);
    }
    return registrations();
}

static void receives(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    static char body[SIZE];
    struct op receive = {0};
    int before = registrations();

    CHECK_THAT(op_recv(&receive, client, body, sizeof body, 1), >=, 0);
    op_received(&receive, sizeof body);
    check_filled(body, sizeof body, 1);
    as_many("completed", "receiver", before);
    pair_part(side);
}

static void sends(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    static char body[SIZE];
    struct op send = {0};
    int before = registrations();

    fill(body, sizeof body, 1);
    CHECK_THAT(op_send(&send, server, body, sizeof body, 1), >=, 0);
    op_sent(&send);
    as_many("completed", "sender", before);
    pair_part(side);
}

static void cancels(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    static char body[SIZE];
    struct op receive = {0};
    int before = warm(client, false), most = before;

    pair_hear(side, "sent");
    CHECK_THAT(op_recv(&receive, client, body, sizeof body, 2), >=, 0);
    for (int i = 0; i < PUMPS && most == before && !op_done(&receive); i++) {
        host_pump(1);
        most = registrations();
    }
    /* In the middle: its memory is registered. */
    CHECK_THAT(most, >, before);
    CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
    op_failed(&receive, BMI_ECANCEL);
    as_many("cancelled", "receiver", before);
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
    int before = warm(server, true);

    CHECK_THAT(op_send(&send, server, body, sizeof body, 2), >=, 0);
    tell(side, "sent", 0);
    pair_hear(side, "cancelled");
    op_wait(&send);
    CHECK_THAT(send.error, !=, 0);
    as_many("cancelled", "sender", before);
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
