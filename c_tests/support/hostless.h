/*
 * A program that uses the table without being a BMI host: a server that takes messages, a client that sends one.
 *
 *     server: hostless_serve() ── "endpoint" ──► client: hostless_join(), hostless_say()
 *             hostless_take()  ◄──────────────────────── one unexpected message
 *             hostless_stop()                            hostless_stop()
 *
 * Replaces host.c, whose functions the library would find by dlsym.
 *
 * Owns: the table in use. Knows nothing of: who is told of peers.
 */
#ifndef C_TESTS_HOSTLESS_H
#define C_TESTS_HOSTLESS_H

#include "bmi.h"
#include "world.h"

enum { HOSTLESS_ID = 9 }; /* the method's number at initialize */

/* Set by the program before any other call. */
extern const struct bmi_method_ops *table;

/* Initializes as a server on an unused endpoint, sends its number and returns it; opens context 0. */
int hostless_serve(struct side *side);
/* Returns the sender of the next message, which must be this text. */
struct bmi_method_addr *hostless_take(const char *wanted);
/* Initializes as a client, opens context 0, receives the endpoint's number and looks it up. */
struct bmi_method_addr *hostless_join(struct side *side);
/* Sends an unexpected message and waits until it is sent. */
void hostless_say(struct bmi_method_addr *server, const char *text);
/* Calls close_context, finalize, and DROP_ADDR of an address unless it is NULL. */
void hostless_stop(struct bmi_method_addr *address);

#endif
