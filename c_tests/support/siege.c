/* See siege.h. */
#include "siege.h"

#include "memory.h"
#include "service.h"

enum {
    LARGEST = 1024 * 1024, /* announced, over every port */
    WATCH_MS = 250,
    STEADY_KIB = 300,
    PAUSE_MS = 5000, /* for a small request beside large ones, on a busy machine */
    LEAVE_MS = 20000,
    GROWN_KIB = 6 * 1024,
};

void besieged(struct side *side, struct bmi_method_addr *server)
{
    tell(side, "number", number_seen(server));
    tell(side, "longest", use_steadily(side, server, LARGEST));
    hear(side, "stop");
    host_stop();
}

static int descriptors_of(const struct child *child)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/fd", (int)child_pid(child));
    return entries(path);
}

/* Returns the smallest resident size within a while: between two large messages. */
static int64_t least_kib(const struct child *child)
{
    int64_t least = INT64_MAX;

    for (int64_t until = now_ms() + WATCH_MS; now_ms() < until; pause_ms(2)) {
        int64_t kib = resident_kib(child_pid(child));

        least = kib < least ? kib : least;
    }
    return least;
}

void siege_begin(struct siege *siege)
{
    int64_t before;

    /* Waits until all rings have been written to. */
    siege->kib = least_kib(siege->server);
    do {
        before = siege->kib;
        siege->kib = least_kib(siege->server);
    } while (siege->kib > before + STEADY_KIB);
    siege->descriptors = descriptors_of(siege->server);
}

void siege_end(struct siege *siege, int strangers)
{
    int64_t grown;

    UNTIL_WITHIN(LEAVE_MS, descriptors_of(siege->server) <= siege->descriptors)
        pause_ms(20);
    grown = least_kib(siege->server) - siege->kib;
    printf("    the server has grown by %d KiB\n", (int)grown);
    if (slower() == 1) /* a checker keeps freed memory */
        CHECK_THAT(grown, <=, GROWN_KIB);
    for (int i = 0; i < BESIEGED; i++)
        child_tell(siege->clients[i], "stop", 0);
    for (int i = 0; i < BESIEGED; i++) {
        int64_t longest = child_hear(siege->clients[i], "longest");

        printf("    at most %d ms for a small request\n", (int)longest);
        CHECK_THAT(longest, <=, PAUSE_MS * slower());
        child_end(siege->clients[i]);
    }
    end_attacked(siege->server, BESIEGED, strangers);
}
