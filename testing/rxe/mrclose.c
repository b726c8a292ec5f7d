/*
 * Tests whether closing a registration ends the peer's access. Two endpoints of this process over a provider: b
 * reads a's memory, a closes its registration and writes to the memory, b reads again with the old key.
 *
 *     mrclose [PROVIDER]      default: verbs;ofi_rxm
 *
 * Exit status 0: access has ended; 1: b has read what was written later; 2: something else failed.
 */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { LENGTH = 1 << 16, SECONDS = 60 };

#define MUST(call)                                                                       \
    do {                                                                                 \
        long code_ = (call);                                                             \
        if (code_ != 0) {                                                                \
            printf("%s: %s\n", #call, fi_strerror((int)-code_));                         \
            exit(2);                                                                     \
        }                                                                                \
    } while (0)

static struct fi_info *info;
static struct fid_cq *queue;

static bool late(const struct timespec *begin)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec - begin->tv_sec > SECONDS;
}

/* Returns 0, or the error of the one completion. */
static int completion(void)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    struct timespec begin;
    ssize_t got;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    while ((got = fi_cq_read(queue, &entry, 1)) == -FI_EAGAIN)
        if (late(&begin))
            return FI_ETIMEDOUT;
    if (got == 1)
        return 0;
    if (got != -FI_EAVAIL || fi_cq_readerr(queue, &error, 0) != 1)
        return (int)-got;
    return error.err;
}

static int get(struct fid_ep *ep, fi_addr_t from, char *to, void *desc, uint64_t at, uint64_t key)
{
    struct fi_cq_tagged_entry none;
    struct timespec begin;
    ssize_t code;

    memset(to, '.', LENGTH);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while ((code = fi_read(ep, to, LENGTH, desc, from, at, key, NULL)) == -FI_EAGAIN) {
        fi_cq_read(queue, &none, 0);
        if (late(&begin))
            return FI_ETIMEDOUT;
    }
    return code != 0 ? (int)-code : completion();
}

static char *memory(void)
{
    void *start = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (start == MAP_FAILED)
        exit(2);
    return start;
}

int main(int argc, char **argv)
{
    struct fi_info *hints = fi_allocinfo();
    struct fi_cq_attr queue_attr = {.size = 256, .format = FI_CQ_FORMAT_TAGGED};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_ep *ep[2];
    struct fid_mr *source, *sink;
    fi_addr_t at[2];
    char *a = memory(), *b = memory();
    uint64_t key, base;
    int code;

    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup(argc > 1 ? argv[1] : "verbs;ofi_rxm");
    MUST(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info));
    printf("%s on %s\n", info->fabric_attr->prov_name, info->domain_attr->name);
    MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
    MUST(fi_domain(fabric, info, &domain, NULL));
    MUST(fi_cq_open(domain, &queue_attr, &queue, NULL));
    MUST(fi_av_open(domain, &av_attr, &av, NULL));
    for (int i = 0; i < 2; i++) {
        char name[256];
        size_t length = sizeof name;

        MUST(fi_endpoint(domain, info, &ep[i], NULL));
        MUST(fi_ep_bind(ep[i], &queue->fid, FI_TRANSMIT | FI_RECV));
        MUST(fi_ep_bind(ep[i], &av->fid, 0));
        MUST(fi_enable(ep[i]));
        MUST(fi_getname(&ep[i]->fid, name, &length));
        MUST(fi_av_insert(av, name, 1, &at[i], 0, NULL) != 1);
    }
    MUST(fi_mr_reg(domain, a, LENGTH, FI_REMOTE_READ, 0, 1, 0, &source, NULL));
    MUST(fi_mr_reg(domain, b, LENGTH, FI_READ, 0, 2, 0, &sink, NULL));
    key = fi_mr_key(source);
    base = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)a : 0;

    memset(a, 'A', LENGTH);
    code = get(ep[1], at[0], b, fi_mr_desc(sink), base, key);
    printf("registered: %s, read '%c'\n", fi_strerror(code), b[0]);
    if (code != 0 || b[0] != 'A')
        return 2;
    MUST(fi_close(&source->fid));
    memset(a, 'B', LENGTH);
    code = get(ep[1], at[0], b, fi_mr_desc(sink), base, key);
    printf("closed: %s, read '%c'\n", fi_strerror(code), b[0]);
    return memchr(b, 'B', LENGTH) != NULL ? 1 : code == 0 || code == FI_ETIMEDOUT ? 2 : 0;
}
