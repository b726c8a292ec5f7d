/*
 * Exchanges as OrangeFS's clients have them, and the order in which they fail.
 *
 *     client                                       server
 *     receive of the answer
 *     request, unexpected                   ───►   receive of the data
 *     data, too large to go by itself       ───►
 *                                           ◄───   answer
 *
 * A client that hears of a failed receive before it hears of the sends that fail with it waits for ever
 * (docs/hosts.md, Calls), so this one fails its test then.
 *
 * Owns: the buffers. Knows nothing of: what makes exchanges fail.
 */
#ifndef C_TESTS_EXCHANGE_H
#define C_TESTS_EXCHANGE_H

#include "host.h"
#include "op.h"
#include "world.h"

enum { EXCHANGES = 3 };

/* A client's, begun together. */
struct exchanges {
    struct op answer[EXCHANGES], request[EXCHANGES], data[EXCHANGES];
};

/* ---- clients ---- */

/* Begins them; any post may be refused. */
void exchanges_begin(struct exchanges *all, struct bmi_method_addr *server);
/* Waits until they have ended, with testcontext for so many completions at a time, and checks the order
 * in which failures are told. Returns whether all of them went well. */
bool exchanges_end(struct exchanges *all, int incount, int ms);
/* Every operation was accepted and has failed. */
void exchanges_all_failed(const struct exchanges *all);
/* Again and again, as the director says: exchanges that go well ("well", how many before did not), and those
 * during which the server is killed ("begun", "killed", "failed"). */
void exchanges_lose_servers(struct side *side, struct bmi_method_addr *server, int incount);

/* ---- servers ---- */

/* Serves exchanges until any note comes. */
void exchanges_serve(struct side *side);

#endif
