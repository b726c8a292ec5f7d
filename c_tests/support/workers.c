/* See workers.h. */
#include "workers.h"

static struct worker {
    work_fn work;
    atomic_bool begun;
    pthread_t thread;
} workers[WORKERS];

static void *works(void *argument)
{
    struct worker *worker = argument;

    for (;;) {
        atomic_store(&worker->begun, true);
        worker->work((int)(worker - workers));
        pthread_testcancel();
    }
    return NULL;
}

int workers_cancel(work_fn work, int round)
{
    int count = 1 + round % WORKERS;

    for (int i = 0; i < count; i++) {
        workers[i].work = work;
        atomic_store(&workers[i].begun, false);
        CHECK(pthread_create(&workers[i].thread, NULL, works, &workers[i]) == 0);
    }
    for (int i = 0; i < count; i++)
        UNTIL (atomic_load(&workers[i].begun))
            continue;
    /* At any moment: as it begins, as it spins, asleep. */
    pause_ms(round % 5);
    for (int i = 0; i < count; i++)
        CHECK(pthread_cancel(workers[i].thread) == 0);
    for (int i = 0; i < count; i++) {
        void *ended = NULL;

        CHECK(pthread_join(workers[i].thread, &ended) == 0);
        CHECK(ended == PTHREAD_CANCELED);
    }
    return count;
}
