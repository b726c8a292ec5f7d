/*
 * Operations: posted, completed exactly once, waited for with a deadline.
 *
 *     op_send/op_recv...  ──► 0  pending   ──► testcontext / test / testsome ──► done
 *                         ──► 1  complete  ──────────────────────────────────► done
 *                         ──► <0 failed    ──► must never be reported
 *
 * The user pointer is the operation itself, so that a completion that is reported twice, for a failed post, or in
 * another context is found at once.
 *
 * Owns: the bookkeeping. Knows nothing of: buffers' contents, peers.
 */
#ifndef C_TESTS_OP_H
#define C_TESTS_OP_H

#include "bmi.h"

#include <stdatomic.h>

struct op {
    bmi_op_id_t id;
    bmi_context_id context; /* set before posting if not 0 */
    int posted;             /* result of the post */
    bmi_size_t actual;      /* size of a receive that completes at once */
    bmi_size_t size;        /* size of the completion */
    bmi_error_code_t error; /* error of the completion */
    int turn;               /* position of its completion among those of this process */
    atomic_int completions;
};

/* Set before a second thread posts or tests. */
extern bool ops_on_many_threads;

/* Return what the entry point returned: 0, 1 or negative. */
int op_send(struct op *op, struct bmi_method_addr *to, const void *buffer, bmi_size_t size,
            bmi_msg_tag_t tag);
int op_send_unexpected(struct op *op, struct bmi_method_addr *to, const void *buffer,
                       bmi_size_t size, bmi_msg_tag_t tag);
int op_recv(struct op *op, struct bmi_method_addr *from, void *buffer, bmi_size_t size,
            bmi_msg_tag_t tag);

/* A buffer cut into segments. */
struct cut {
    void **buffers;
    bmi_size_t *sizes;
    int count;
    bmi_size_t total;
};
/* Cuts `size` bytes at `buffer` into segments of `first`, `first + step`, ... bytes, with a
 * zero-length one (NULL address) after every `zero_every` segments when that is > 0. */
struct cut cut_up(void *buffer, bmi_size_t size, bmi_size_t first, bmi_size_t step,
                  int zero_every);
void cut_free(struct cut *cut);

int op_send_cut(struct op *op, struct bmi_method_addr *to, const struct cut *cut,
                bmi_msg_tag_t tag);
int op_send_unexpected_cut(struct op *op, struct bmi_method_addr *to, const struct cut *cut,
                           bmi_msg_tag_t tag);
/* Records the result of a post function that was called for `op`. */
int op_posted(struct op *op, int result);
int op_recv_cut(struct op *op, struct bmi_method_addr *from, const struct cut *cut,
                bmi_msg_tag_t tag);

/* Records one completion; called for whatever a test entry point reports. */
void op_completed(void *user, bmi_op_id_t id, bmi_error_code_t error, bmi_size_t size,
                  bmi_context_id context);

bool op_done(const struct op *op);
/* Polls (host_pump and the operation's own context) until the operation has completed. */
void op_wait(struct op *op);
bool op_wait_within(struct op *op, int ms);
/* Waits and checks for success, and for `size` received bytes. */
void op_sent(struct op *op);
void op_received(struct op *op, bmi_size_t size);
/* Waits and checks for this error. */
void op_failed(struct op *op, int error);
/* Returns the code of a rejected post; waits for any other operation, and returns the code of its completion. */
int op_code(struct op *op);

/* ---- one operation, posted and waited for, which must succeed ---- */

void send_message(struct bmi_method_addr *to, const void *buffer, bmi_size_t size, bmi_msg_tag_t tag);
/* Likewise, as an unexpected message. */
void send_request(struct bmi_method_addr *to, const void *buffer, bmi_size_t size, bmi_msg_tag_t tag);
/* Receives a message, which must have `size` bytes. */
void receive_message(struct bmi_method_addr *from, void *buffer, bmi_size_t size, bmi_msg_tag_t tag);
/* Sends a request and receives its answer, of the same size and tag. Returns false if either ended with an error;
 * neither is left pending. An answer that was there before the request answers an earlier one, whose receive had
 * ended: also false. */
bool try_ask(struct bmi_method_addr *server, const void *request, void *answer, bmi_size_t size, bmi_msg_tag_t tag);

#endif
