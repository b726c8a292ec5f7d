/*
 * A bad cable between two interfaces of the hub.
 *
 *      a ──► forth: queue, loss, delay ... ──► b           with netem in the kernel: a bridge, and
 *        ◄── back ◄────────────────────────               tc on both ends; without: mx_shaper
 *
 * Which of the two it is, is found out once and printed. Frames are those of a real cable if the
 * hosts' offloads are off (plug_in_plain); those of both ends are.
 *
 * Owns: the process of mx_shaper. Knows nothing of: what is sent.
 */
#ifndef C_TESTS_CABLE_H
#define C_TESTS_CABLE_H

#include "world.h"

/* One direction. Shares are in thousandths: 1 is 0.1 %. */
struct way {
    int delay_us, jitter_us;
    int loss, duplicate, reorder, corrupt;
    int garble;     /* datagrams changed so that their UDP checksum still holds; never with netem */
    int rate_mbit;  /* 0: as fast as it goes */
    int queue_kib;  /* with a rate */
    int black_hole; /* larger IP packets vanish; 0: none do */
};

struct cable;

/* Between two interfaces of this namespace, until cable_remove or the end of this process. */
struct cable *cable_lay(const char *a, const char *b, const struct way *forth,
                        const struct way *back);
/* Prints what became of the frames, where that is known. */
void cable_remove(struct cable *cable);
/* "20 ms, 1% loss", for those who read figures. */
const char *way_text(const struct way *way, char *text, size_t size);

#endif
