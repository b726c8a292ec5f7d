/*
 * A server like a file system's, and its clients: requests, answers and data.
 *
 *     client                                        server
 *     receive of the answer
 *     request, unexpected                    ───►   GET: an answer of that size
 *     data, expected (PUT)                   ───►   receive of the data, then an answer
 *                                            ◄───   ASK: the client's name at the server
 *
 * Contents are checked on both sides. Operations may fail, for example because the client's address has changed;
 * each must end, and a server goes on. Requests from one address are one client's, in order, and none comes twice.
 * A server that strangers attack, and its clients, have a receive posted for each other whose tag no message has.
 *
 * Owns: the buffers. Knows nothing of: networks.
 */
#ifndef C_TESTS_SERVICE_H
#define C_TESTS_SERVICE_H

#include "host.h"
#include "op.h"
#include "world.h"

/* Size of messages that are sent eagerly, and one that no port sends eagerly. */
enum { EAGER_BYTES = 60 * 1000, BULK_BYTES = 5 * 1024 * 1024 };

/* Tag of the receives that no message may match. */
enum { TAG_UNUSED = 7 };

/* ---- servers ---- */

/* Role of a server that listens on this address, until it receives "stop". */
void serve_at(struct side *side, const char *address);
/* Likewise, while strangers attack; if `address` is NULL on any endpoint, whose number comes with "serving". */
void serve_attacked(struct side *side, const char *address);
/* For directors: ends the server. None of its operations has failed, and it had that many clients, unless
 * WHATEVER. */
enum { WHATEVER = -1 };
void end_service(struct child *server, int clients);
/* Likewise; at least `clients`, and at most `strangers` more. */
void end_attacked(struct child *server, int clients, int strangers);

/* ---- clients ---- */

struct bmi_method_addr *service_of(const char *host, int endpoint);
/* Makes one request; false if an operation failed, with the first code that was reported. All operations have
 * ended. */
bool try_get(struct bmi_method_addr *server, int64_t size, int *code);
bool try_put(struct bmi_method_addr *server, int64_t size, int *code);
/* A request under way. Several may be under way at a time. */
enum { SERVICE_TEXT = 96 };
struct request {
    int64_t kind, size, seed;
    int64_t netmask;
    char range[SERVICE_TEXT];
};
struct exchange {
    struct request request;
    struct op receive, send, data; /* `data`: of a put */
    char *in, *out;                /* `in`: the answer, the bytes of a get */
    bmi_size_t room;
};
void begin_get(struct exchange *exchange, struct bmi_method_addr *server, int64_t size);
void begin_put(struct exchange *exchange, struct bmi_method_addr *server, int64_t size);
bool is_over(const struct exchange *exchange);
/* Waits for its end; returns the code of its first failed operation, or 0. Contents are checked. */
int end_exchange(struct exchange *exchange);
/* Makes requests of all kinds and sizes, each of which must succeed, and checks the client's host as the server
 * sees it. */
void converse(struct bmi_method_addr *server, const char *host);
/* Makes small requests until one succeeds; returns how many failed. */
int well_again(struct bmi_method_addr *server);
/* Checks the answer to ASK: the host in the client's name as the server sees it. */
void seen_as(struct bmi_method_addr *server, const char *host);
/* Returns the endpoint number in that name. */
int number_seen(struct bmi_method_addr *server);
/* Uses the server without a pause until a note comes, with messages of up to `largest` bytes, all of which must
 * succeed. Returns the longest round trip of a small request, in milliseconds. */
int64_t use_steadily(struct side *side, struct bmi_method_addr *server, int64_t largest);
/* Returns whether the client is in this range of an export list, as OrangeFS's servers read it: mx://10.0.0.0@24,
 * mx://10.0.* or mx://10.0.0.7. */
bool lies_in(struct bmi_method_addr *server, const char *range);

/* ---- strangers ---- */

/* Makes a request that is answered with a name that begins with "mx://"; returns its size. */
enum { QUESTION_MAX = 256 };
size_t make_question(void *bytes, int64_t number);

#endif
