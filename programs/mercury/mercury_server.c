/* A Mercury service over mx: reads its clients' memory and returns the sum of its bytes.
 *   mercury_server mx+mx:// ...   prints its address and serves until it is killed */
#include <mercury.h>
#include <mercury_bulk.h>
#include <mercury_proc_bulk.h>
#include <stdio.h>
#include <stdlib.h>

struct job {
    hg_handle_t handle;
    hg_bulk_t theirs, ours;
    unsigned char *bytes;
    hg_size_t size;
};

static hg_return_t on_read(const struct hg_cb_info *info)
{
    struct job *job = info->arg;
    hg_uint64_t sum = 0;
    for (hg_size_t at = 0; info->ret == HG_SUCCESS && at < job->size; at++)
        sum += job->bytes[at];
    /* A client that has died meanwhile gets no answer. */
    if (info->ret == HG_SUCCESS)
        HG_Respond(job->handle, NULL, NULL, &sum);
    HG_Bulk_free(job->ours);
    HG_Free_input(job->handle, &job->theirs);
    HG_Destroy(job->handle);
    free(job->bytes);
    free(job);
    return HG_SUCCESS;
}

static hg_return_t on_sum(hg_handle_t handle)
{
    const struct hg_info *info = HG_Get_info(handle);
    struct job *job = calloc(1, sizeof *job);
    job->handle = handle;
    HG_Get_input(handle, &job->theirs);
    job->size = HG_Bulk_get_size(job->theirs);
    job->bytes = malloc(job->size);
    HG_Bulk_create(info->hg_class, 1, (void **)&job->bytes, &job->size, HG_BULK_WRITE_ONLY, &job->ours);
    return HG_Bulk_transfer(info->context, on_read, job, HG_BULK_PULL, info->addr, job->theirs, 0, job->ours, 0, job->size, NULL);
}

int main(int argc, char **argv)
{
    hg_class_t *class = HG_Init(argc > 1 ? argv[1] : "mx+mx://", HG_TRUE);
    hg_context_t *context = class ? HG_Context_create(class) : NULL;
    char text[256];
    hg_size_t size = sizeof text;
    hg_addr_t self;
    if (!context || HG_Addr_self(class, &self) != HG_SUCCESS || HG_Addr_to_string(class, text, &size, self) != HG_SUCCESS)
        return 1;
    if (HG_Register_name(class, "sum", hg_proc_hg_bulk_t, hg_proc_hg_uint64_t, on_sum) == 0)
        return 1;
    printf("%s\n", text);
    fflush(stdout);
    for (;;) {
        unsigned count = 0;
        HG_Progress(context, 1000); /* sleeps until an event comes */
        do
            HG_Trigger(context, 0, 1, &count);
        while (count);
    }
}
