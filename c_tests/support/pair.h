/*
 * Meeting and parting of the two sides of a pair.
 *
 *     serve(): initialize, tell endpoint          join(): hear endpoint, initialize, lookup
 *     accept(): first unexpected message   ◄────  hello()
 *     ...                                         ...
 *     part(): both say "bye", both keep pumping until they have heard it; then finalize
 *
 * Owns nothing. Knows nothing of: what is exchanged in between.
 */
#ifndef C_TESTS_PAIR_H
#define C_TESTS_PAIR_H

#include "host.h"
#include "op.h"
#include "pattern.h"
#include "port.h"
#include "world.h"

/* Server on a free endpoint; tells it to the other end of the line; returns it. */
int pair_serve(struct side *side);
/* Client; hears the endpoint and looks it up. */
struct bmi_method_addr *pair_join(struct side *side);
/* The first message each way of a pair: afterwards both peers are ready. */
struct bmi_method_addr *pair_accept(void);
void pair_hello(struct bmi_method_addr *server);

/* Likewise; false when it ended with an error, as with a connection that the server had dropped before. */
bool pair_try_hello(struct bmi_method_addr *server);
/* Keeps the library moving until this process is killed. */
_Noreturn void pair_await_death(void);
/* serve + accept, join + hello. */
struct bmi_method_addr *pair_server(struct side *side);
struct bmi_method_addr *pair_client(struct side *side);
/* Waits for the note while the library is kept moving. */
int64_t pair_hear(struct side *side, const char *word);
/* Calls oneself. Returns the called end, which has an address of its own: a message that is sent to one end is received
 * from the other. */
struct bmi_method_addr *pair_call_self(struct bmi_method_addr *self);
/* One message from each of two ends in this process to the other. */
void pair_exchange_ends(struct bmi_method_addr *end, struct bmi_method_addr *other_end, size_t size, bmi_msg_tag_t tag);
/* Calls oneself, and exchanges a message each way between the two ends. */
void pair_exchange_self(struct bmi_method_addr *self, size_t size, bmi_msg_tag_t tag);
/* One message each way, posted by both sides with the same size and tag. */
void pair_exchange(struct bmi_method_addr *peer, size_t size, bmi_msg_tag_t tag);
/* Messages of no byte to three million, the largest once: below and above every limit of a port. */
void pair_exchange_all(struct bmi_method_addr *peer, int times);
/* Sends a message filled with a pattern; takes one, expected or unexpected, which must be all of it. */
void send_pattern(struct bmi_method_addr *to, bmi_size_t size, bmi_msg_tag_t tag, uint64_t seed);
void receive_pattern(struct bmi_method_addr *from, bmi_size_t size, bmi_msg_tag_t tag, uint64_t seed);
struct bmi_method_addr *take_pattern(bmi_size_t size, bmi_msg_tag_t tag, uint64_t seed);
/* Waits until the host is told that a caller is dead, without taking messages. */
void pair_hears_death(struct bmi_method_addr *caller);
/* Checks that a caller is dead for good: the host was told once and may drop its address, and whatever is posted for
 * it ends with -BMI_ENETRESET, at once. */
void pair_is_dead(struct bmi_method_addr *caller);
/* Keeps the library moving until any note comes. */
void pair_idle(struct side *side);
/* Both sides meet here; neither goes on before the other has come. */
void pair_sync(struct side *side);
void pair_part(struct side *side);

/* Roles that do nothing but meet and part. */
void only_server(struct side *side);
void only_client(struct side *side);

#endif
