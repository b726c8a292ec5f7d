/*
 * Replaces the stand-alone BMI library where that is not installed.
 *
 *   bmi_rpc.c ──► BMI_post_send ──► bmi_mx_ops->post_send_list ──► libbmi_mx_standalone
 *
 * Contains the functions that bmi_rpc.c calls, as BMI's own bmi.h declares them, each for one method and one
 * context: an address is a pointer to the method's.
 */
#ifndef EXAMPLES_RPC_BMI_H
#define EXAMPLES_RPC_BMI_H

#include "../method.h"

struct BMI_unexpected_info {
    bmi_error_code_t error_code;
    BMI_addr_t addr;
    void *buffer;
    bmi_size_t size;
    bmi_msg_tag_t tag;
};

#define BMI_post_sendunexpected(id, dest, buffer, size, type, tag, user, context, hints) \
    BMI_post_sendunexpected_class(id, dest, buffer, size, type, tag, 0, user, context, hints)
#define BMI_testunexpected(incount, outcount, info, idle_ms) \
    BMI_testunexpected_class(incount, outcount, info, 0, idle_ms)

static const struct bmi_method_ops *bmi_ops;

static inline struct bmi_method_addr *bmi_method_addr_of(BMI_addr_t addr)
{
    return (struct bmi_method_addr *)(intptr_t)addr;
}

static inline int BMI_initialize(const char *methods, const char *listen_addr, int flags)
{
    struct bmi_method_addr *addr = NULL;

    (void)methods;
    bmi_ops = method_open("BMI_initialize");
    if (bmi_ops == NULL)
        return -BMI_ENODEV;
    if (listen_addr != NULL && (addr = bmi_ops->method_addr_lookup(listen_addr)) == NULL)
        return -BMI_EINVAL;
    return bmi_ops->initialize(addr, 0, flags);
}

static inline int BMI_finalize(void)
{
    return bmi_ops->finalize();
}

static inline int BMI_open_context(bmi_context_id *context)
{
    *context = 0;
    return bmi_ops->open_context(*context);
}

static inline void BMI_close_context(bmi_context_id context)
{
    bmi_ops->close_context(context);
}

static inline int BMI_get_info(BMI_addr_t addr, int option, void *parameter)
{
    (void)addr;
    return bmi_ops->get_info(option, parameter);
}

static inline int BMI_addr_lookup(BMI_addr_t *addr, const char *text)
{
    *addr = (intptr_t)bmi_ops->method_addr_lookup(text);
    return *addr == 0 ? -BMI_EINVAL : 0;
}

static inline const char *BMI_addr_rev_lookup_unexpected(BMI_addr_t addr)
{
    return bmi_ops->rev_lookup_unexpected(bmi_method_addr_of(addr));
}

static inline int BMI_post_send(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer, bmi_size_t size,
                                bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                                bmi_context_id context, bmi_hint hints)
{
    return bmi_ops->post_send_list(id, bmi_method_addr_of(dest), &buffer, &size, 1, size, type, tag, user,
                                   context, hints);
}

static inline int BMI_post_sendunexpected_class(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer,
                                                bmi_size_t size, bmi_buffer_type type, bmi_msg_tag_t tag,
                                                uint8_t class, void *user, bmi_context_id context,
                                                bmi_hint hints)
{
    return bmi_ops->post_sendunexpected_list(id, bmi_method_addr_of(dest), &buffer, &size, 1, size, type,
                                             tag, class, user, context, hints);
}

static inline int BMI_post_recv(bmi_op_id_t *id, BMI_addr_t src, void *buffer, bmi_size_t size,
                                bmi_size_t *actual, bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                                bmi_context_id context, bmi_hint hints)
{
    return bmi_ops->post_recv_list(id, bmi_method_addr_of(src), &buffer, &size, 1, size, actual, type, tag,
                                   user, context, hints);
}

static inline int BMI_cancel(bmi_op_id_t id, bmi_context_id context)
{
    return bmi_ops->cancel(id, context);
}

static inline int BMI_testcontext(int incount, bmi_op_id_t *ids, int *outcount, bmi_error_code_t *errors,
                                  bmi_size_t *sizes, void **users, int idle_ms, bmi_context_id context)
{
    return bmi_ops->testcontext(incount, ids, outcount, errors, sizes, users, idle_ms, context);
}

static inline int BMI_testunexpected_class(int incount, int *outcount, struct BMI_unexpected_info *infos,
                                           uint8_t class, int idle_ms)
{
    *outcount = 0;
    while (*outcount < incount) {
        struct bmi_method_unexpected_info info;
        int count = 0, rc = bmi_ops->testunexpected(1, &count, &info, class, *outcount == 0 ? idle_ms : 0);

        if (rc < 0)
            return rc;
        if (count == 0)
            break;
        infos[(*outcount)++] = (struct BMI_unexpected_info){
            info.error_code, (intptr_t)info.addr, info.buffer, info.size, info.tag};
    }
    return *outcount > 0;
}

static inline int BMI_unexpected_free(BMI_addr_t addr, void *buffer)
{
    (void)addr;
    return bmi_ops->unexpected_free(buffer);
}

#endif
