/* See secret_file.h. */
#include "secret_file.h"

#include <sys/stat.h>

static char path[64];

void secret_file(const char *letters, mode_t mode)
{
    int fd;

    if (letters == NULL) {
        CHECK(unsetenv("MX_SECRET_FILE") == 0);
        return;
    }
    snprintf(path, sizeof path, "/tmp/bmi_mx_secret_XXXXXX");
    fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_THAT(write(fd, letters, strlen(letters)), ==, strlen(letters));
    CHECK(fchmod(fd, mode) == 0);
    close(fd);
    CHECK(setenv("MX_SECRET_FILE", path, 1) == 0);
}

void secret_file_gone(void)
{
    if (path[0] != '\0')
        CHECK(unlink(path) == 0);
    path[0] = '\0';
}
