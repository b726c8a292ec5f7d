/*
 * Connecting and parting of the two sides of a pair.
 *
 *     serve(): initialize, send the endpoint      join(): receive the endpoint, initialize, look it up
 *     accept(): first unexpected message   ◄────  hello()
 *     ...                                         ...
 *     part(): both say "bye", both poll until they have received it; then finalize
 *
 * Owns nothing. Knows nothing of: the messages in between.
 */
#ifndef C_TESTS_PAIR_H
#define C_TESTS_PAIR_H

#include "host.h"
#include "op.h"
#include "pattern.h"
#include "port.h"
#include "world.h"

/* Starts a server on a free endpoint; sends its number to the other side; returns it. */
int pair_serve(struct side *side);
/* Starts a client; receives the endpoint's number and looks it up. */
struct bmi_method_addr *pair_join(struct side *side);
/* The first message each way of a pair: afterwards both peers are ready. */
struct bmi_method_addr *pair_accept(void);
void pair_hello(struct bmi_method_addr *server);

/* Likewise; false if it ended with an error, as with a connection that the server had closed before. */
bool pair_try_hello(struct bmi_method_addr *server);
/* Polls until this process is killed. */
_Noreturn void pair_await_death(void);
/* serve and accept; join and hello. */
struct bmi_method_addr *pair_server(struct side *side);
struct bmi_method_addr *pair_client(struct side *side);
/* Waits for the note, and polls meanwhile. */
int64_t pair_hear(struct side *side, const char *word);
/* Calls this process itself. Returns the called end, which has an address of its own: a message sent to one end is
 * received from the other. */
struct bmi_method_addr *pair_call_self(struct bmi_method_addr *self);
/* Sends one message from each of two ends in this process to the other. */
void pair_exchange_ends(struct bmi_method_addr *end, struct bmi_method_addr *other_end, size_t size, bmi_msg_tag_t tag);
/* Calls this process itself, and sends a message each way between the two ends. */
void pair_exchange_self(struct bmi_method_addr *self, size_t size, bmi_msg_tag_t tag);
/* Exchanges one message each way; both sides call it with the same size and tag. */
void pair_exchange(struct bmi_method_addr *peer, size_t size, bmi_msg_tag_t tag);
/* Exchanges messages from no bytes to three million, the largest once: below and above every limit of a port. */
void pair_exchange_all(struct bmi_method_addr *peer, int times);
/* Send a message filled with a pattern; take one, expected or unexpected, and check all of it. */
void send_pattern(struct bmi_method_addr *to, bmi_size_t size, bmi_msg_tag_t tag, uint64_t seed);
void receive_pattern(struct bmi_method_addr *from, bmi_size_t size, bmi_msg_tag_t tag, uint64_t seed);
struct bmi_method_addr *take_pattern(bmi_size_t size, bmi_msg_tag_t tag, uint64_t seed);
/* Waits until the host is told that a caller is dead, without taking messages. */
void pair_hears_death(struct bmi_method_addr *caller);
/* Checks that a caller is dead for good: the host was told once and may drop its address, and every post to it
 * ends with -BMI_ENETRESET, at once. */
void pair_is_dead(struct bmi_method_addr *caller);
/* Polls until any note comes. */
void pair_idle(struct side *side);
/* Both sides wait here until the other has come. */
void pair_sync(struct side *side);
void pair_part(struct side *side);

/* Roles that only connect and part. */
void only_server(struct side *side);
void only_client(struct side *side);

#endif
