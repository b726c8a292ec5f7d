/*
 * The header against docs/hosts.md, Layouts: sizes, offsets, signatures and numbers,
 * at compile time. A wrong one does not build.
 *
 * Written out from the document by hand on purpose: nothing here is derived from the
 * library's own declarations.
 */
#include "../support/bmi.h"
#include "../support/layout.h"

#include <stdarg.h>
#include <setjmp.h>

#include <cmocka.h>
#include <stdio.h>

#define NUMBER(name, value) _Static_assert((name) == (value), #name " has another value")
/* The member has exactly this type: a wrong signature is an error, not a cast. */
#define SIGNATURE(entry, ...)                                                              \
    _Static_assert(_Generic(((struct bmi_method_ops *)0)->entry, __VA_ARGS__: 1, default: 0), \
                   #entry " has another signature")

/* ---- types ---- */

SIZE(bmi_size_t, 8);
SIZE(bmi_op_id_t, 8);
SIZE(bmi_context_id, 8);
SIZE(BMI_addr_t, 8);
SIZE(bmi_msg_tag_t, 4);
SIZE(bmi_error_code_t, 4);
_Static_assert((bmi_size_t)-1 < 0 && (bmi_op_id_t)-1 < 0 && (bmi_context_id)-1 < 0 &&
                   (bmi_msg_tag_t)-1 < 0 && (bmi_error_code_t)-1 < 0 && (BMI_addr_t)-1 < 0,
               "all of them are signed");

/* ---- structs ---- */

SIZE(struct bmi_method_ops, 200);
AT(struct bmi_method_ops, method_name, 0);
AT(struct bmi_method_ops, flags, 8);
AT(struct bmi_method_ops, initialize, 16);
AT(struct bmi_method_ops, finalize, 24);
AT(struct bmi_method_ops, set_info, 32);
AT(struct bmi_method_ops, get_info, 40);
AT(struct bmi_method_ops, memalloc, 48);
AT(struct bmi_method_ops, memfree, 56);
AT(struct bmi_method_ops, unexpected_free, 64);
AT(struct bmi_method_ops, post_send, 72);
AT(struct bmi_method_ops, post_sendunexpected, 80);
AT(struct bmi_method_ops, post_recv, 88);
AT(struct bmi_method_ops, test, 96);
AT(struct bmi_method_ops, testsome, 104);
AT(struct bmi_method_ops, testcontext, 112);
AT(struct bmi_method_ops, testunexpected, 120);
AT(struct bmi_method_ops, method_addr_lookup, 128);
AT(struct bmi_method_ops, post_send_list, 136);
AT(struct bmi_method_ops, post_recv_list, 144);
AT(struct bmi_method_ops, post_sendunexpected_list, 152);
AT(struct bmi_method_ops, open_context, 160);
AT(struct bmi_method_ops, close_context, 168);
AT(struct bmi_method_ops, cancel, 176);
AT(struct bmi_method_ops, rev_lookup_unexpected, 184);
AT(struct bmi_method_ops, query_addr_range, 192);

SIZE(struct bmi_method_addr, 24);
AT(struct bmi_method_addr, method_type, 0);
AT(struct bmi_method_addr, method_data, 8);
AT(struct bmi_method_addr, parent, 16);

SIZE(struct bmi_method_unexpected_info, 40);
AT(struct bmi_method_unexpected_info, error_code, 0);
AT(struct bmi_method_unexpected_info, addr, 8);
AT(struct bmi_method_unexpected_info, buffer, 16);
AT(struct bmi_method_unexpected_info, size, 24);
AT(struct bmi_method_unexpected_info, tag, 32);

SIZE(struct method_drop_addr_query, 16);
AT(struct method_drop_addr_query, addr, 0);
AT(struct method_drop_addr_query, response, 8);

/* Types of this method. */
SIZE(struct bmi_mx_credits, 232);
AT(struct bmi_mx_credits, size, 0);
AT(struct bmi_mx_credits, total, 8);
AT(struct bmi_mx_credits, credit_stalls, 152);
AT(struct bmi_mx_credits, limit_bytes, 224);

SIZE(struct bmi_mx_peer_credits, 56);
AT(struct bmi_mx_peer_credits, size, 0);
AT(struct bmi_mx_peer_credits, addr, 8);
AT(struct bmi_mx_peer_credits, state, 16);
AT(struct bmi_mx_peer_credits, send_stalled, 52);

NUMBER(BMI_MX_GET_CREDITS, 0x4d580001);
NUMBER(BMI_MX_GET_PEER_CREDITS, 0x4d580002);

/* A type of this library, for programs without a host. */
SIZE(struct bmi_mx_host, 32);
AT(struct bmi_mx_host, size, 0);
AT(struct bmi_mx_host, reg_addr, 8);
AT(struct bmi_mx_host, forget_addr, 16);
AT(struct bmi_mx_host, log, 24);

/* ---- signatures (enums and int are interchangeable in C's ABI; the header says int) ---- */

typedef struct bmi_method_addr *address;
typedef const void *const *send_list;
typedef void *const *receive_list;

SIGNATURE(initialize, int (*)(address, int, int, char *));
SIGNATURE(finalize, int (*)(void));
SIGNATURE(set_info, int (*)(int, void *));
SIGNATURE(get_info, int (*)(int, void *));
SIGNATURE(memalloc, void *(*)(bmi_size_t, int));
SIGNATURE(memfree, int (*)(void *, bmi_size_t, int));
SIGNATURE(unexpected_free, int (*)(void *));
SIGNATURE(post_send, int (*)(bmi_op_id_t *, address, const void *, bmi_size_t, int,
                             bmi_msg_tag_t, void *, bmi_context_id, void *));
SIGNATURE(post_sendunexpected, int (*)(bmi_op_id_t *, address, const void *, bmi_size_t, int,
                                       bmi_msg_tag_t, void *, bmi_context_id, void *));
SIGNATURE(post_recv, int (*)(bmi_op_id_t *, address, void *, bmi_size_t, bmi_size_t *, int,
                             bmi_msg_tag_t, void *, bmi_context_id, void *));
SIGNATURE(test, int (*)(bmi_op_id_t, int *, bmi_error_code_t *, bmi_size_t *, void **, int,
                        bmi_context_id));
SIGNATURE(testsome, int (*)(int, bmi_op_id_t *, int *, int *, bmi_error_code_t *, bmi_size_t *,
                            void **, int, bmi_context_id));
SIGNATURE(testcontext, int (*)(int, bmi_op_id_t *, int *, bmi_error_code_t *, bmi_size_t *,
                               void **, int, bmi_context_id));
SIGNATURE(testunexpected, int (*)(int, int *, struct bmi_method_unexpected_info *, int));
SIGNATURE(method_addr_lookup, address (*)(const char *));
SIGNATURE(post_send_list, int (*)(bmi_op_id_t *, address, send_list, const bmi_size_t *, int,
                                  bmi_size_t, int, bmi_msg_tag_t, void *, bmi_context_id,
                                  void *));
SIGNATURE(post_recv_list, int (*)(bmi_op_id_t *, address, receive_list, const bmi_size_t *, int,
                                  bmi_size_t, bmi_size_t *, int, bmi_msg_tag_t, void *,
                                  bmi_context_id, void *));
SIGNATURE(post_sendunexpected_list, int (*)(bmi_op_id_t *, address, send_list,
                                            const bmi_size_t *, int, bmi_size_t, int,
                                            bmi_msg_tag_t, void *, bmi_context_id, void *));
SIGNATURE(open_context, int (*)(bmi_context_id));
SIGNATURE(close_context, void (*)(bmi_context_id));
SIGNATURE(cancel, int (*)(bmi_op_id_t, bmi_context_id));
SIGNATURE(rev_lookup_unexpected, const char *(*)(address));
SIGNATURE(query_addr_range, int (*)(address, const char *, int));

/* ---- numbers ---- */

NUMBER(BMI_SEND, 1);
NUMBER(BMI_RECV, 2);
NUMBER(BMI_PRE_ALLOC, 1);
NUMBER(BMI_EXT_ALLOC, 2);
NUMBER(BMI_INIT_SERVER, 1);
NUMBER(BMI_TCP_BIND_SPECIFIC, 2);
NUMBER(BMI_AUTO_REF_COUNT, 4);
NUMBER(BMI_METHOD_FLAG_NO_POLLING, 1);
NUMBER(BMI_MAX_CONTEXTS, 16);
NUMBER(BMI_MAX_ADDR_LEN, 2048);
NUMBER(BMI_DROP_ADDR, 1);
NUMBER(BMI_CHECK_INIT, 2);
NUMBER(BMI_CHECK_MAXSIZE, 3);
NUMBER(BMI_GET_METH_ADDR, 4);
NUMBER(BMI_INC_ADDR_REF, 5);
NUMBER(BMI_DEC_ADDR_REF, 6);
NUMBER(BMI_DROP_ADDR_QUERY, 7);
NUMBER(BMI_FORCEFUL_CANCEL_MODE, 8);
NUMBER(BMI_TRUSTED_CONNECTION, 9);
NUMBER(BMI_GET_UNEXP_SIZE, 10);
NUMBER(BMI_TCP_BUFFER_SEND_SIZE, 11);
NUMBER(BMI_TCP_BUFFER_RECEIVE_SIZE, 12);
NUMBER(BMI_TCP_CLOSE_SOCKET, 13);
NUMBER(BMI_OPTIMISTIC_BUFFER_REG, 14);
NUMBER(BMI_TCP_CHECK_UNEXPECTED, 15);
NUMBER(BMI_TRANSPORT_METHODS_STRING, 16);

NUMBER(BMI_EPERM, 1073741952 + 1);
NUMBER(BMI_ENOENT, 1073741952 + 2);
NUMBER(BMI_EINTR, 1073741952 + 3);
NUMBER(BMI_EIO, 1073741952 + 4);
NUMBER(BMI_ENXIO, 1073741952 + 5);
NUMBER(BMI_EBADF, 1073741952 + 6);
NUMBER(BMI_EAGAIN, 1073741952 + 7);
NUMBER(BMI_ENOMEM, 1073741952 + 8);
NUMBER(BMI_EFAULT, 1073741952 + 9);
NUMBER(BMI_EBUSY, 1073741952 + 10);
NUMBER(BMI_EEXIST, 1073741952 + 11);
NUMBER(BMI_ENODEV, 1073741952 + 12);
NUMBER(BMI_ENOTDIR, 1073741952 + 13);
NUMBER(BMI_EISDIR, 1073741952 + 14);
NUMBER(BMI_EINVAL, 1073741952 + 15);
NUMBER(BMI_EMFILE, 1073741952 + 16);
NUMBER(BMI_EFBIG, 1073741952 + 17);
NUMBER(BMI_ENOSPC, 1073741952 + 18);
NUMBER(BMI_EROFS, 1073741952 + 19);
NUMBER(BMI_EMLINK, 1073741952 + 20);
NUMBER(BMI_EPIPE, 1073741952 + 21);
NUMBER(BMI_EDEADLK, 1073741952 + 22);
NUMBER(BMI_ENAMETOOLONG, 1073741952 + 23);
NUMBER(BMI_ENOLCK, 1073741952 + 24);
NUMBER(BMI_ENOSYS, 1073741952 + 25);
NUMBER(BMI_ENOTEMPTY, 1073741952 + 26);
NUMBER(BMI_ELOOP, 1073741952 + 27);
NUMBER(BMI_EWOULDBLOCK, 1073741952 + 28);
NUMBER(BMI_ENOMSG, 1073741952 + 29);
NUMBER(BMI_EUNATCH, 1073741952 + 30);
NUMBER(BMI_EBADR, 1073741952 + 31);
NUMBER(BMI_EDEADLOCK, 1073741952 + 32);
NUMBER(BMI_ENODATA, 1073741952 + 33);
NUMBER(BMI_ETIME, 1073741952 + 34);
NUMBER(BMI_ENONET, 1073741952 + 35);
NUMBER(BMI_EREMOTE, 1073741952 + 36);
NUMBER(BMI_ECOMM, 1073741952 + 37);
NUMBER(BMI_EPROTO, 1073741952 + 38);
NUMBER(BMI_EBADMSG, 1073741952 + 39);
NUMBER(BMI_EOVERFLOW, 1073741952 + 40);
NUMBER(BMI_ERESTART, 1073741952 + 41);
NUMBER(BMI_EMSGSIZE, 1073741952 + 42);
NUMBER(BMI_EPROTOTYPE, 1073741952 + 43);
NUMBER(BMI_ENOPROTOOPT, 1073741952 + 44);
NUMBER(BMI_EPROTONOSUPPORT, 1073741952 + 45);
NUMBER(BMI_EOPNOTSUPP, 1073741952 + 46);
NUMBER(BMI_EADDRINUSE, 1073741952 + 47);
NUMBER(BMI_EADDRNOTAVAIL, 1073741952 + 48);
NUMBER(BMI_ENETDOWN, 1073741952 + 49);
NUMBER(BMI_ENETUNREACH, 1073741952 + 50);
NUMBER(BMI_ENETRESET, 1073741952 + 51);
NUMBER(BMI_ENOBUFS, 1073741952 + 52);
NUMBER(BMI_ETIMEDOUT, 1073741952 + 53);
NUMBER(BMI_ECONNREFUSED, 1073741952 + 54);
NUMBER(BMI_EHOSTDOWN, 1073741952 + 55);
NUMBER(BMI_EHOSTUNREACH, 1073741952 + 56);
NUMBER(BMI_EALREADY, 1073741952 + 57);
NUMBER(BMI_EACCES, 1073741952 + 58);
NUMBER(BMI_ECONNRESET, 1073741952 + 59);
NUMBER(BMI_ECANCEL, 1610612864 + 1);
NUMBER(BMI_EDEVINIT, 1610612864 + 2);
NUMBER(BMI_EDETAIL, 1610612864 + 3);
NUMBER(BMI_EHOSTNTFD, 1610612864 + 4);
NUMBER(BMI_EADDRNTFD, 1610612864 + 5);
NUMBER(BMI_ENORECVR, 1610612864 + 6);
NUMBER(BMI_ETRYAGAIN, 1610612864 + 7);

/* The document's own examples. */
NUMBER(BMI_ENOMEM, 1073741960);
NUMBER(BMI_EINVAL, 1073741967);
NUMBER(BMI_ETIMEDOUT, 1073742005);
NUMBER(BMI_ENETRESET, 1073742003);
NUMBER(BMI_EHOSTUNREACH, 1073742008);
NUMBER(BMI_ECANCEL, 1610612865);

/* What is left for run time: that the file was compiled, and that the compiled table has these offsets' contents
 * (table.c tests more). */
static void the_header_agrees_with_the_document(void **state)
{
    (void)state;
    assert_int_equal(sizeof bmi_mx_ops, 200);
    assert_string_equal(bmi_mx_ops.method_name, "bmi_mx");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_header_agrees_with_the_document)};
    int failed = cmocka_run_group_tests_name("layout", tests, NULL, NULL);

    printf("tally %d passed %d failed 0 skipped\n", 1 - failed, failed);
    return failed;
}
