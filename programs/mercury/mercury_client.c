/* A client of mercury_server: exposes a mebibyte for it to read, and checks its answer.
 *   mercury_client ADDRESS */
#include <mercury.h>
#include <mercury_bulk.h>
#include <mercury_proc_bulk.h>
#include <stdio.h>
#include <string.h>

static int done;

static hg_return_t on_answer(const struct hg_cb_info *info)
{
    hg_uint64_t sum = 0;
    done = info->ret == HG_SUCCESS && HG_Get_output(info->info.forward.handle, &sum) == HG_SUCCESS ? 1 : -1;
    printf("%llu\n", (unsigned long long)sum);
    return HG_SUCCESS;
}

int main(int argc, char **argv)
{
    static unsigned char bytes[1 << 20];
    void *memory = bytes;
    hg_size_t size = sizeof bytes;
    char protocol[32];
    hg_addr_t server;
    hg_handle_t handle;
    hg_bulk_t bulk;
    if (argc != 2 || sscanf(argv[1], "%31[^:]", protocol) != 1)
        return 2;
    hg_class_t *class = HG_Init(protocol, HG_FALSE);
    hg_context_t *context = class ? HG_Context_create(class) : NULL;
    if (!context || HG_Addr_lookup2(class, argv[1], &server) != HG_SUCCESS)
        return 1;
    hg_id_t sum = HG_Register_name(class, "sum", hg_proc_hg_bulk_t, hg_proc_hg_uint64_t, NULL);
    memset(bytes, 3, sizeof bytes);
    HG_Bulk_create(class, 1, &memory, &size, HG_BULK_READ_ONLY, &bulk);
    if (HG_Create(context, server, sum, &handle) != HG_SUCCESS || HG_Forward(handle, on_answer, NULL, &bulk) != HG_SUCCESS)
        return 1;
    while (!done) {
        unsigned count = 0;
        HG_Progress(context, 100);
        HG_Trigger(context, 0, 1, &count);
    }
    HG_Destroy(handle);
    HG_Bulk_free(bulk);
    HG_Addr_free(class, server);
    HG_Context_destroy(context);
    return HG_Finalize(class) == HG_SUCCESS && done == 1 ? 0 : 1;
}
