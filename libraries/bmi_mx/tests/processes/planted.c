/* A library that a caller has planted. It shows that its code ran: MARK is the path of a file. */
#include <fcntl.h>
#include <unistd.h>

__attribute__((constructor)) static void run(void)
{
    close(open(MARK, O_WRONLY | O_CREAT, 0644));
}
