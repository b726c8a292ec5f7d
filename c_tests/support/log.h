/*
 * The library's log, taken by this program as a host takes it.
 *
 *     log_take()     collects lines from now on; earlier ones are forgotten
 *     log_one(...)   exactly one warning or error since then, and it contains all these texts
 *
 * Owns: the lines. Knows nothing of: what they should say.
 */
#ifndef C_TESTS_LOG_H
#define C_TESTS_LOG_H

#include "check.h"

enum { LOG_ERROR = 1, LOG_WARNING = 2 };

void log_take(void);
/* Likewise, with a function of the program's own; NULL removes it. */
void log_by(void (*take)(int level, const char *line));
void log_forget(void);
/* Returns the number of warnings and errors. */
int log_count(void);
/* Returns the number of lines of any level that contain this text. */
int log_said(const char *text);

/* Checks for exactly one warning or error: of this level, unless it is 0, and with all of these texts. Then
 * forgets it. */
#define log_one(level, ...) log_is_one(__FILE__, __LINE__, level, (const char *const[]){__VA_ARGS__, NULL})
void log_is_one(const char *file, int line, int level, const char *const *texts);

#endif
