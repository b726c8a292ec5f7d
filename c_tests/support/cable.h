/*
 * A bad cable between two interfaces of the hub.
 *
 *      a ──► forth: queue, loss, delay ... ──► b           with netem in the kernel: a bridge, and
 *        ◄── back ◄────────────────────────               tc on both ends; without: mx_shaper
 *
 * The choice is made once, and printed. Frames are those of a real cable if the hosts' offloads are off
 * (plug_in_plain); the ends' offloads are always off.
 *
 * Owns: the process of mx_shaper. Knows nothing of: the data.
 */
#ifndef C_TESTS_CABLE_H
#define C_TESTS_CABLE_H

#include "world.h"

/* One direction. Shares are in thousandths: 1 is 0.1 %. */
struct way {
    int delay_us, jitter_us;
    int loss, duplicate, reorder, corrupt;
    int garble;     /* datagrams changed so that their UDP checksum still holds; 0 with netem */
    int rate_mbit;  /* 0: unlimited */
    int queue_kib;  /* used with a rate */
    int black_hole; /* IP packets that are larger are lost; 0: none */
};

struct cable;

/* Connects two interfaces of this namespace, until cable_remove or the end of this process. */
struct cable *cable_lay(const char *a, const char *b, const struct way *forth,
                        const struct way *back);
/* Prints what happened to the frames, if known. */
void cable_remove(struct cable *cable);
/* Formats the cable's properties: "20 ms, 1% loss". */
const char *way_text(const struct way *way, char *text, size_t size);

#endif
