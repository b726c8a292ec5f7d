/* See standalone.h. */
#define C_TESTS_OWN_TABLE
#include "check.h"

#include "layout.h"
#include "standalone.h"

/* Layouts of docs/hosts.md, written out from the document by hand. */
SIZE(struct bmi_method_ops, 176);
AT(struct bmi_method_ops, method_name, 0);
AT(struct bmi_method_ops, flags, 8);
AT(struct bmi_method_ops, initialize, 16);
AT(struct bmi_method_ops, finalize, 24);
AT(struct bmi_method_ops, set_info, 32);
AT(struct bmi_method_ops, get_info, 40);
AT(struct bmi_method_ops, memalloc, 48);
AT(struct bmi_method_ops, memfree, 56);
AT(struct bmi_method_ops, unexpected_free, 64);
AT(struct bmi_method_ops, test, 72);
AT(struct bmi_method_ops, testsome, 80);
AT(struct bmi_method_ops, testcontext, 88);
AT(struct bmi_method_ops, testunexpected, 96);
AT(struct bmi_method_ops, method_addr_lookup, 104);
AT(struct bmi_method_ops, post_send_list, 112);
AT(struct bmi_method_ops, post_recv_list, 120);
AT(struct bmi_method_ops, post_sendunexpected_list, 128);
AT(struct bmi_method_ops, open_context, 136);
AT(struct bmi_method_ops, close_context, 144);
AT(struct bmi_method_ops, cancel, 152);
AT(struct bmi_method_ops, rev_lookup_unexpected, 160);
AT(struct bmi_method_ops, query_addr_range, 168);

SIZE(struct bmi_method_addr, 40);
AT(struct bmi_method_addr, method_type, 0);
AT(struct bmi_method_addr, ref_count, 4);
AT(struct bmi_method_addr, method_data, 8);
AT(struct bmi_method_addr, parent, 16);
AT(struct bmi_method_addr, primary, 24);
AT(struct bmi_method_addr, secondary, 32);

_Static_assert(BMI_MAX_ADDR_LEN == 256 && BMI_ZOID_POST_TIMEOUT == 16 &&
                   BMI_TRANSPORT_METHODS_STRING == 17 && BMI_TCP_GET_PORT == 18,
               "the numbers of this host");

/* Sets NAME=value pairs in the environment, before there are other threads. */
static void set_environment(const char *options)
{
    char *copy = strdup(options), *rest = copy;

    for (char *pair; (pair = strsep(&rest, " ,;\t\n")) != NULL;) {
        char *value = strchr(pair, '=');

        if (value == NULL)
            continue;
        *value++ = '\0';
        setenv(pair, value, 1);
    }
    free(copy);
}

static int initialize(struct bmi_method_addr *listen_addr, int method_id, int flags, char *options)
{
    if (options != NULL)
        set_environment(options);
    return the_table()->initialize(listen_addr, method_id, flags);
}

static int post_send(bmi_op_id_t *id, struct bmi_method_addr *dest, const void *buffer,
                     bmi_size_t size, bmi_buffer_type buffer_type, bmi_msg_tag_t tag,
                     void *user_ptr, bmi_context_id context_id, bmi_hint hints)
{
    return the_table()->post_send_list(id, dest, &buffer, &size, 1, size, buffer_type, tag,
                                       user_ptr, context_id, hints);
}

static int post_sendunexpected_list(bmi_op_id_t *id, struct bmi_method_addr *dest,
                                    const void *const *buffer_list, const bmi_size_t *size_list,
                                    int list_count, bmi_size_t total_size,
                                    bmi_buffer_type buffer_type, bmi_msg_tag_t tag,
                                    void *user_ptr, bmi_context_id context_id, bmi_hint hints)
{
    return the_table()->post_sendunexpected_list(id, dest, buffer_list, size_list, list_count,
                                                 total_size, buffer_type, tag, 0, user_ptr,
                                                 context_id, hints);
}

static int post_sendunexpected(bmi_op_id_t *id, struct bmi_method_addr *dest, const void *buffer,
                               bmi_size_t size, bmi_buffer_type buffer_type, bmi_msg_tag_t tag,
                               void *user_ptr, bmi_context_id context_id, bmi_hint hints)
{
    return post_sendunexpected_list(id, dest, &buffer, &size, 1, size, buffer_type, tag, user_ptr,
                                    context_id, hints);
}

static int post_recv(bmi_op_id_t *id, struct bmi_method_addr *src, void *buffer,
                     bmi_size_t expected_size, bmi_size_t *actual_size,
                     bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                     bmi_context_id context_id, bmi_hint hints)
{
    return the_table()->post_recv_list(id, src, &buffer, &expected_size, 1, expected_size,
                                       actual_size, buffer_type, tag, user_ptr, context_id, hints);
}

static int testunexpected(int incount, int *outcount, struct bmi_method_unexpected_info *info,
                          int max_idle_time_ms)
{
    return the_table()->testunexpected(incount, outcount, info, 0, max_idle_time_ms);
}

const struct ops_of_orangefs *the_ops(void);

const struct ops_of_orangefs *the_ops(void)
{
    static struct ops_of_orangefs ops;
    const struct bmi_method_ops *table = the_table();

    if (table == NULL)
        return NULL;
    ops = (struct ops_of_orangefs){
        .method_name = table->method_name,
        .flags = table->flags,
        .initialize = initialize,
        .finalize = table->finalize,
        .set_info = table->set_info,
        .get_info = table->get_info,
        .memalloc = table->memalloc,
        .memfree = table->memfree,
        .unexpected_free = table->unexpected_free,
        .post_send = post_send,
        .post_sendunexpected = post_sendunexpected,
        .post_recv = post_recv,
        .test = table->test,
        .testsome = table->testsome,
        .testcontext = table->testcontext,
        .testunexpected = testunexpected,
        .method_addr_lookup = table->method_addr_lookup,
        .post_send_list = table->post_send_list,
        .post_recv_list = table->post_recv_list,
        .post_sendunexpected_list = post_sendunexpected_list,
        .open_context = table->open_context,
        .close_context = table->close_context,
        .cancel = table->cancel,
        .rev_lookup_unexpected = table->rev_lookup_unexpected,
        .query_addr_range = table->query_addr_range,
    };
    return &ops;
}
