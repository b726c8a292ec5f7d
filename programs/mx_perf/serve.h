/* The other side: does what clients ask for, one after another. */
#ifndef MX_PERF_SERVE_H
#define MX_PERF_SERVE_H

#include "link.h"

/*
 * Serves one client, until it says that it is done (NULL), fails, or has said nothing for a minute. With
 * options->keep one client after another, until killed; those that fail are noted.
 */
const char *serve(struct link *link, const struct options *options);

#endif
