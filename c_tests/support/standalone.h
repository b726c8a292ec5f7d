/*
 * The table of the stand-alone BMI, for programs that were written for OrangeFS's.
 *
 *     test ──► the_ops(): the entries of OrangeFS ──► as the host itself does ──► bmi_mx_ops
 *
 * Does what that host's bmi.c does before it calls the method: passes a buffer as a list of one, class 0, and no
 * options (the environment replaces them).
 */
#ifndef C_TESTS_STANDALONE_H
#define C_TESTS_STANDALONE_H

#include "bmi_mx_standalone.h"

/* The table that tests call. */
struct ops_of_orangefs {
    const char *method_name;
    int flags;
    int (*initialize)(struct bmi_method_addr *listen_addr, int method_id, int flags, char *options);
    int (*finalize)(void);
    int (*set_info)(int option, void *parameter);
    int (*get_info)(int option, void *parameter);
    void *(*memalloc)(bmi_size_t size, bmi_op_type send_recv);
    int (*memfree)(void *buffer, bmi_size_t size, bmi_op_type send_recv);
    int (*unexpected_free)(void *buffer);
    int (*post_send)(bmi_op_id_t *id, struct bmi_method_addr *dest, const void *buffer,
                     bmi_size_t size, bmi_buffer_type buffer_type, bmi_msg_tag_t tag,
                     void *user_ptr, bmi_context_id context_id, bmi_hint hints);
    int (*post_sendunexpected)(bmi_op_id_t *id, struct bmi_method_addr *dest, const void *buffer,
                               bmi_size_t size, bmi_buffer_type buffer_type, bmi_msg_tag_t tag,
                               void *user_ptr, bmi_context_id context_id, bmi_hint hints);
    int (*post_recv)(bmi_op_id_t *id, struct bmi_method_addr *src, void *buffer,
                     bmi_size_t expected_size, bmi_size_t *actual_size,
                     bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                     bmi_context_id context_id, bmi_hint hints);
    int (*test)(bmi_op_id_t id, int *outcount, bmi_error_code_t *error_code,
                bmi_size_t *actual_size, void **user_ptr, int max_idle_time_ms,
                bmi_context_id context_id);
    int (*testsome)(int incount, bmi_op_id_t *id_array, int *outcount, int *index_array,
                    bmi_error_code_t *error_code_array, bmi_size_t *actual_size_array,
                    void **user_ptr_array, int max_idle_time_ms, bmi_context_id context_id);
    int (*testcontext)(int incount, bmi_op_id_t *out_id_array, int *outcount,
                       bmi_error_code_t *error_code_array, bmi_size_t *actual_size_array,
                       void **user_ptr_array, int max_idle_time_ms, bmi_context_id context_id);
    int (*testunexpected)(int incount, int *outcount, struct bmi_method_unexpected_info *info,
                          int max_idle_time_ms);
    struct bmi_method_addr *(*method_addr_lookup)(const char *id_string);
    int (*post_send_list)(bmi_op_id_t *id, struct bmi_method_addr *dest,
                          const void *const *buffer_list, const bmi_size_t *size_list,
                          int list_count, bmi_size_t total_size, bmi_buffer_type buffer_type,
                          bmi_msg_tag_t tag, void *user_ptr, bmi_context_id context_id,
                          bmi_hint hints);
    int (*post_recv_list)(bmi_op_id_t *id, struct bmi_method_addr *src, void *const *buffer_list,
                          const bmi_size_t *size_list, int list_count,
                          bmi_size_t total_expected_size, bmi_size_t *total_actual_size,
                          bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                          bmi_context_id context_id, bmi_hint hints);
    int (*post_sendunexpected_list)(bmi_op_id_t *id, struct bmi_method_addr *dest,
                                    const void *const *buffer_list, const bmi_size_t *size_list,
                                    int list_count, bmi_size_t total_size,
                                    bmi_buffer_type buffer_type, bmi_msg_tag_t tag,
                                    void *user_ptr, bmi_context_id context_id, bmi_hint hints);
    int (*open_context)(bmi_context_id context_id);
    void (*close_context)(bmi_context_id context_id);
    int (*cancel)(bmi_op_id_t id, bmi_context_id context_id);
    const char *(*rev_lookup_unexpected)(struct bmi_method_addr *addr);
    int (*query_addr_range)(struct bmi_method_addr *addr, const char *wildcard, int netmask);
};

/* Returns the library's table, from ops_linked.c or ops_dlopen.c, whichever is linked. */
const struct bmi_method_ops *the_table(void);

#ifndef C_TESTS_OWN_TABLE
#define bmi_method_ops ops_of_orangefs
#endif

#endif
