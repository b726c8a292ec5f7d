/*
 * The library's log, taken by this program as a host takes it.
 *
 *     log_take()     lines come here from now on; what was taken before is forgotten
 *     log_one(...)   exactly one warning or error since then, and it says all of that
 *
 * Owns: the lines. Knows nothing of: what they should say.
 */
#ifndef C_TESTS_LOG_H
#define C_TESTS_LOG_H

#include "check.h"

enum { LOG_ERROR = 1, LOG_WARNING = 2 };

void log_take(void);
/* Likewise, with a function of the program's; NULL: none any more. */
void log_by(void (*take)(int level, const char *line));
void log_forget(void);
/* Warnings and errors. */
int log_count(void);
/* Lines of any level in which this text is. */
int log_said(const char *text);

/* Exactly one warning or error: of this level, unless it is 0, and with all of these texts. Then it is forgotten. */
#define log_one(level, ...) log_is_one(__FILE__, __LINE__, level, (const char *const[]){__VA_ARGS__, NULL})
void log_is_one(const char *file, int line, int level, const char *const *texts);

#endif
