/*
 * Forks while other threads are within the library.
 *
 *     initialize, finalize, look-ups  ──► in the middle of one: fork ──► child: look-up, initialize, finalize
 *
 *     Not under AddressSanitizer, whose allocator's locks stay taken in such a child (gcc 12).
 */
#include "../support/host.h"
#include "../support/world.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_bool over;

static void *starts_and_ends(void *nothing)
{
    (void)nothing;
    while (!atomic_load(&over))
        if (ops->initialize(NULL, METHOD_ID, 0, NULL) == 0)
            CHECK_THAT(ops->finalize(), ==, 0);
    return NULL;
}

static void *looks_up(void *nothing)
{
    (void)nothing;
    while (!atomic_load(&over))
        ops->set_info(BMI_DROP_ADDR, ops->method_addr_lookup("mx://localhost:0:5"));
    return NULL;
}

/* A child has no use for what another thread of its parent was in the middle of. */
static void forks_meanwhile(struct side *side)
{
    pthread_t starter, looker;

    (void)side;
    host_start_client();
    host_stop();
    atomic_store(&over, false);
    CHECK_THAT(pthread_create(&starter, NULL, starts_and_ends, NULL), ==, 0);
    CHECK_THAT(pthread_create(&looker, NULL, looks_up, NULL), ==, 0);
    for (int i = 0; i < 30; i++) {
        int status = -1;
        pid_t child = fork();

        CHECK(child >= 0);
        if (child == 0) {
            struct bmi_method_addr *addr;

            alarm(WAIT_MS / 1000);
            addr = ops->method_addr_lookup("mx://localhost:0:6");
            if (addr == NULL || ops->set_info(BMI_DROP_ADDR, addr) != 0)
                _exit(1);
            if (ops->initialize(NULL, METHOD_ID, 0, NULL) != 0)
                _exit(2);
            _exit(ops->finalize() == 0 ? 0 : 3);
        }
        CHECK_THAT(waitpid(child, &status, 0), ==, child);
        if (WIFSIGNALED(status))
            FAIL("the forked child hangs");
        CHECK_THAT(WEXITSTATUS(status), ==, 0);
    }
    atomic_store(&over, true);
    pthread_join(starter, NULL);
    pthread_join(looker, NULL);
}

static const struct scenario scenarios[] = {
    SOLO(a_child_forked_while_others_start_and_look_up_is_not_stuck, forks_meanwhile),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
