/* See ids.h. */
#include "ids.h"

#include <sys/socket.h>
#include <sys/un.h>

enum {
    FIRST = 29 * 1024, /* after the library's own block */
    END = 32 * 1024,   /* begin of the kernel's range for outgoing connections */
};

/* Variables in the environment of sides: the block's first id, and the first to try. */
static const char BLOCK[] = "C_TESTS_IDS", TURN[] = "C_TESTS_IDS_FROM";

static void set_number(const char *name, int number)
{
    char text[16];

    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

/* Claims a block of ids; on success the socket stays open. */
static bool claim(int base)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "mx-tests-%d", base);

    if (fd < 0) {
        perror("a socket for the claim to endpoint ids");
        exit(1);
    }
    if (bind(fd, (struct sockaddr *)&name,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0)
        return true;
    close(fd);
    return false;
}

int claim_block(int first, int last, int size)
{
    for (deadline_t deadline = deadline_in(WAIT_MS); !deadline_over(deadline); pause_ms(20))
        for (int base = first; base + size <= last + 1; base += size)
            if (claim(base))
                return base;
    fputs("every block of endpoint ids is taken\n", stderr);
    exit(1);
}

void ids_claim(void)
{
    int base = claim_block(FIRST, END - 1, IDS);

    set_number(BLOCK, base);
    set_number(TURN, 0);
}

static int number(const char *name)
{
    const char *text = getenv(name);

    CHECK(text != NULL);
    return atoi(text);
}

void ids_turn(void)
{
    set_number(TURN, (number(TURN) + 1) % IDS);
}

int ids_try(int attempt)
{
    return number(BLOCK) + (number(TURN) + attempt) % IDS;
}
