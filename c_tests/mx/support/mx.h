/*
 * Calls of the MX library, each checked: its result, and whether the error handler was called.
 *
 *     OK(mx_wakeup(ep))                        success, and no handler was called
 *     REFUSED(mx_wakeup(NULL), MX_BAD_ENDPOINT)     that code, reported to the handler exactly once
 *
 * Owns: the suite's error handler and its calls, for each thread. Knows nothing of: processes, peers.
 */
#ifndef MX_TESTS_MX_H
#define MX_TESTS_MX_H

#include "../../support/check.h"

#include "myriexpress.h"
#include "mx_extensions.h"

#define OK(call)                                                                         \
    (errors_begin(), check_return(__FILE__, __LINE__, #call, (call), MX_SUCCESS))
#define REFUSED(call, code)                                                              \
    (errors_begin(), check_return(__FILE__, __LINE__, #call, (call), (code)))
/* STATUS_IS(status, MX_STATUS_TRUNCATED) */
#define STATUS_IS(status, wanted) check_status(__FILE__, __LINE__, &(status), (wanted))

void errors_begin(void);
void check_return(const char *file, int line, const char *call, mx_return_t got,
                  mx_return_t wanted);
void check_status(const char *file, int line, const mx_status_t *status,
                  mx_status_code_t wanted);

/* The handler of every test: records its arguments, and returns the code. */
mx_return_t note_error(char *text, mx_return_t code);

/* Calls of note_error() on this thread since errors_begin(). */
struct errors {
    int count;
    mx_return_t code;
    char text[256];
};
extern _Thread_local struct errors errors;

/* Returns "MX_BAD_ENDPOINT", "MX_STATUS_TIMEOUT"; the number for any other value. */
const char *return_text(mx_return_t code);
const char *status_text(mx_status_code_t code);

#endif
