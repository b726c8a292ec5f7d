/* The other side: serves clients, one after another. */
#ifndef MX_PERF_SERVE_H
#define MX_PERF_SERVE_H

#include "link.h"

/* Serves one client until it is done (NULL), fails, or has been silent for a minute. With options->keep, serves
 * one client after another until killed, and prints the failures.
 */
const char *serve(struct link *link, const struct options *options);

#endif
