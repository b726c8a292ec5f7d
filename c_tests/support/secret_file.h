/*
 * The file of a site's secret (MX_SECRET_FILE), one for each process.
 *
 *     secret_file("letters", 0600) ── the library reads it ── secret_file_gone()
 *
 * Owns: the file, until it is deleted. Knows nothing of: the library.
 */
#ifndef C_TESTS_SECRET_FILE_H
#define C_TESTS_SECRET_FILE_H

#include "check.h"

#include <sys/types.h>

/* Writes a file with these letters and that mode, and sets MX_SECRET_FILE; for NULL the process has no secret. */
void secret_file(const char *letters, mode_t mode);
/* Deletes the file, if there is one. */
void secret_file_gone(void);

#endif
