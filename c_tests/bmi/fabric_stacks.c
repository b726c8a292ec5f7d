/*
 * Stack used by libfabric's own calls, without this project's libraries: `make fabric-stacks`.
 *
 *     a ── message ──► b        two endpoints of one process, every call by on_stack(), which logs its bytes
 *
 * The argument names the provider; the default is tcp;ofi_rxm.
 */
#include "../support/check.h"
#include "../support/stacks.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { A, B, BOTH, LARGE = 64 << 10, NAME_MAX_BYTES = 256 };

#define W(value) (word)(value)
/* libfabric's calls are inline functions, which have addresses all the same. */
#define CALL(name, ...) on_stack(#name, false, (void (*)(void))name, (const word[ARGUMENTS]){__VA_ARGS__})
#define GOOD(name, ...) CHECK_THAT((int)CALL(name, __VA_ARGS__), ==, 0)

static struct fid_ep *endpoints[BOTH];
static struct fid_cq *queues[BOTH];

/* Returns true if a completion has come. */
static bool read_queue(int side)
{
    struct fi_cq_entry entry;
    ssize_t count = CALL(fi_cq_read, W(queues[side]), W(&entry), 1);

    CHECK(count == 1 || count == -FI_EAGAIN);
    return count == 1;
}

/* Sends one message from a to b. */
static void exchange(fi_addr_t to, size_t size)
{
    static char in[LARGE], out[LARGE];
    struct fi_context2 contexts[BOTH];
    bool done[BOTH] = {false, false};
    time_t end = time(NULL) + 20;
    ssize_t sent;

    GOOD(fi_recv, W(endpoints[B]), W(in), sizeof in, 0, W(FI_ADDR_UNSPEC), W(&contexts[B]));
    do {
        sent = CALL(fi_send, W(endpoints[A]), W(out), W(size), 0, W(to), W(&contexts[A]));
        for (int side = A; side < BOTH; side++)
            done[side] |= read_queue(side);
    } while (sent == -FI_EAGAIN && time(NULL) < end);
    CHECK_THAT(sent, ==, 0);
    while (!(done[A] && done[B]) && time(NULL) < end)
        for (int side = A; side < BOTH; side++)
            done[side] |= read_queue(side);
    CHECK(done[A] && done[B]);
}

int main(int argc, char **argv)
{
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *addresses;
    struct fi_av_attr table = {.type = FI_AV_TABLE};
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_FD};
    fi_addr_t to;

    CHECK(are_stacks_wanted());
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup(argc > 1 ? argv[1] : "tcp;ofi_rxm");
    GOOD(fi_getinfo, FI_VERSION(1, 14), W("127.0.0.1"), 0, W(FI_SOURCE), W(hints), W(&info));
    GOOD(fi_fabric, W(info->fabric_attr), W(&fabric), 0);
    GOOD(fi_domain, W(fabric), W(info), W(&domain), 0);
    GOOD(fi_av_open, W(domain), W(&table), W(&addresses), 0);
    for (int side = A; side < BOTH; side++) {
        GOOD(fi_cq_open, W(domain), W(&queue), W(&queues[side]), 0);
        GOOD(fi_endpoint, W(domain), W(info), W(&endpoints[side]), 0);
        GOOD(fi_ep_bind, W(endpoints[side]), W(&addresses->fid), 0);
        GOOD(fi_ep_bind, W(endpoints[side]), W(&queues[side]->fid), W(FI_SEND | FI_RECV));
        GOOD(fi_enable, W(endpoints[side]));
    }
    {
        char name[NAME_MAX_BYTES];
        size_t size = sizeof name;

        GOOD(fi_getname, W(&endpoints[B]->fid), W(name), W(&size));
        CHECK_THAT((int)CALL(fi_av_insert, W(addresses), W(name), 1, W(&to), 0, 0), ==, 1);
    }
    exchange(to, 64);
    exchange(to, LARGE);
    for (int side = A; side < BOTH; side++) {
        GOOD(fi_close, W(&endpoints[side]->fid));
        GOOD(fi_close, W(&queues[side]->fid));
    }
    GOOD(fi_close, W(&addresses->fid));
    GOOD(fi_close, W(&domain->fid));
    GOOD(fi_close, W(&fabric->fid));
    return 0;
}
