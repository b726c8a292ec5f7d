/* The other side: does what clients ask for, one after another. */
#ifndef MX_PERF_SERVE_H
#define MX_PERF_SERVE_H

#include "link.h"

/* Serves until killed, or with `until_quit` until a client says so. Returns what ended it. */
const char *serve(struct link *link, const char *program, int until_quit);

#endif
