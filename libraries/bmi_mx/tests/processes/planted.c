/* A library planted by a caller. It creates the file MARK to show that its code ran. */
#include <fcntl.h>
#include <unistd.h>

__attribute__((constructor)) static void run(void)
{
    close(open(MARK, O_WRONLY | O_CREAT, 0644));
}
