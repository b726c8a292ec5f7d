/*
 * The headers against the reference of the MX API: sizes, offsets, values and signatures, at
 * compile time. A wrong one does not build.
 *
 * Written out from the reference on purpose: nothing here is derived from the library's own
 * declarations.
 */
#include "myriexpress.h"

/* The main header must do without the others. */
#ifdef MX_EXTENSIONS_H
#error "myriexpress.h includes mx_extensions.h"
#endif

/* Programs print numbers with what it includes. */
#ifndef PRIx64
#error "myriexpress.h does not include inttypes.h"
#endif

#include "mx_extensions.h"
#include "mx_internals/mx__driver_interface.h"
#include "mx_internals/mx__fops.h"

/* Either defines that mx_io.h is included. */
#ifndef MX_IO_H
#error "mx_internals does not lead to mx_io.h"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SIZE(type, bytes, alignment)                                                      \
    _Static_assert(sizeof(type) == (bytes) && _Alignof(type) == (alignment),              \
                   #type " has another size or alignment")
#define AT(type, member, offset, bytes)                                                   \
    _Static_assert(offsetof(type, member) == (offset) &&                                  \
                       sizeof(((type *)0)->member) == (bytes),                            \
                   #type "." #member " is elsewhere, or has another size")
#define VALUE(name, value) _Static_assert((name) == (value), #name " has another value")
/* The function has exactly this type: a wrong signature is an error, not a cast. */
#define SIGNATURE(result, function, ...)                                                  \
    _Static_assert(_Generic(&function, result (*)(__VA_ARGS__): 1, default: 0),           \
                   #function " has another signature")

/* ---- layouts ---- */

SIZE(mx_endpoint_t, 8, 8);
SIZE(mx_request_t, 8, 8);
SIZE(mx_endpoint_addr_t, 16, 8);
AT(mx_endpoint_addr_t, stuff, 0, 16);
SIZE(mx_segment_ptr_t, 8, 8);
SIZE(mx_segment_t, 16, 8);
AT(mx_segment_t, segment_ptr, 0, 8);
AT(mx_segment_t, segment_length, 8, 4);
SIZE(mx_return_t, 4, 4);
SIZE(mx_status_code_t, 4, 4);
SIZE(mx_param_key_t, 4, 4);
SIZE(mx_get_info_key_t, 4, 4);
SIZE(enum mx_net_type, 4, 4);
SIZE(mx_line_speed_t, 4, 4);
SIZE(mx_unexp_handler_action_t, 4, 4);
SIZE(mx_status_t, 48, 8);
AT(mx_status_t, code, 0, 4);
AT(mx_status_t, source, 8, 16);
AT(mx_status_t, match_info, 24, 8);
AT(mx_status_t, msg_length, 32, 4);
AT(mx_status_t, xfer_length, 36, 4);
AT(mx_status_t, context, 40, 8);
SIZE(mx_param_t, 16, 8);
AT(mx_param_t, key, 0, 4);
AT(mx_param_t, val, 8, 8);
AT(mx_param_t, val.error_handler, 8, 8);
AT(mx_param_t, val.unexp_queue_max, 8, 4);
AT(mx_param_t, val.context_id, 8, 2);
AT(mx_param_t, val.context_id.bits, 8, 1);
AT(mx_param_t, val.context_id.shift, 9, 1);
SIZE(mx_error_handler_t, 8, 8);
SIZE(mx_matching_callback_t, 8, 8);
SIZE(mx_unexp_handler_t, 8, 8);
SIZE(mx_endpt_handle_t, 4, 4);
SIZE(mx_mapper_state_t, 36, 4);
AT(mx_mapper_state_t, board_number, 0, 4);
AT(mx_mapper_state_t, mapper_mac, 4, 6);
AT(mx_mapper_state_t, iport, 10, 2);
AT(mx_mapper_state_t, map_version, 12, 4);
AT(mx_mapper_state_t, num_hosts, 16, 4);
AT(mx_mapper_state_t, network_configured, 20, 4);
AT(mx_mapper_state_t, routes_valid, 24, 4);
AT(mx_mapper_state_t, level, 28, 4);
AT(mx_mapper_state_t, flags, 32, 4);
SIZE(mx_host_type_t, 4, 4);

/* Types that are passed by value in two integer registers. */
_Static_assert(_Alignof(mx_endpoint_addr_t) == 8, "an address is two words");
_Static_assert(_Generic((mx_endpoint_t)0, struct mx_endpoint *: 1, default: 0) &&
                   _Generic((mx_request_t)0, union mx_request *: 1, default: 0) &&
                   _Generic((mx_segment_ptr_t)0, void *: 1, default: 0),
               "handles are opaque pointers");
_Static_assert(_Generic((struct mx_status *)0, mx_status_t *: 1, default: 0),
               "struct mx_status is another type");

/* ---- values ---- */

/* enum mx_return_code */
VALUE(MX_SUCCESS, 0);
VALUE(MX_BAD_BAD_BAD, 1);
VALUE(MX_FAILURE, 2);
VALUE(MX_ALREADY_INITIALIZED, 3);
VALUE(MX_NOT_INITIALIZED, 4);
VALUE(MX_NO_DEV, 5);
VALUE(MX_NO_DRIVER, 6);
VALUE(MX_NO_PERM, 7);
VALUE(MX_BOARD_UNKNOWN, 8);
VALUE(MX_BAD_ENDPOINT, 9);
VALUE(MX_BAD_SEG_LIST, 10);
VALUE(MX_BAD_SEG_MEM, 11);
VALUE(MX_BAD_SEG_CNT, 12);
VALUE(MX_BAD_REQUEST, 13);
VALUE(MX_BAD_MATCH_MASK, 14);
VALUE(MX_NO_RESOURCES, 15);
VALUE(MX_BAD_ADDR_LIST, 16);
VALUE(MX_BAD_ADDR_COUNT, 17);
VALUE(MX_BAD_ROOT, 18);
VALUE(MX_NOT_COMPLETED, 19);
VALUE(MX_BUSY, 20);
VALUE(MX_BAD_INFO_KEY, 21);
VALUE(MX_BAD_INFO_VAL, 22);
VALUE(MX_BAD_NIC, 23);
VALUE(MX_BAD_PARAM_LIST, 24);
VALUE(MX_BAD_PARAM_NAME, 25);
VALUE(MX_BAD_PARAM_VAL, 26);
VALUE(MX_BAD_HOSTNAME_ARGS, 27);
VALUE(MX_HOST_NOT_FOUND, 28);
VALUE(MX_REQUEST_PENDING, 29);
VALUE(MX_TIMEOUT, 30);
VALUE(MX_NO_MATCH, 31);
VALUE(MX_BAD_ENDPOINT_ID, 32);
VALUE(MX_CONNECTION_FAILED, 33);
VALUE(MX_BAD_CONNECTION_KEY, 34);
VALUE(MX_BAD_INFO_LENGTH, 35);
VALUE(MX_NIC_NOT_FOUND, 36);
VALUE(MX_BAD_KERNEL_VERSION, 37);
VALUE(MX_BAD_LIB_VERSION, 38);
VALUE(MX_NIC_DEAD, 39);
VALUE(MX_CANCEL_NOT_SUPPORTED, 40);
VALUE(MX_CLOSE_IN_HANDLER, 41);
VALUE(MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK, 42);
VALUE(MX_NOT_SUPPORTED_WITH_CONTEXT_ID, 43);
/* enum mx_param_key */
VALUE(MX_PARAM_ERROR_HANDLER, 0);
VALUE(MX_PARAM_UNEXP_QUEUE_MAX, 1);
VALUE(MX_PARAM_CONTEXT_ID, 2);
/* enum mx_status_code */
VALUE(MX_STATUS_SUCCESS, 0);
VALUE(MX_STATUS_PENDING, 1);
VALUE(MX_STATUS_BUFFERED, 2);
VALUE(MX_STATUS_REJECTED, 3);
VALUE(MX_STATUS_TIMEOUT, 4);
VALUE(MX_STATUS_TRUNCATED, 5);
VALUE(MX_STATUS_CANCELLED, 6);
VALUE(MX_STATUS_ENDPOINT_UNKNOWN, 7);
VALUE(MX_STATUS_ENDPOINT_CLOSED, 8);
VALUE(MX_STATUS_ENDPOINT_UNREACHABLE, 9);
VALUE(MX_STATUS_BAD_SESSION, 10);
VALUE(MX_STATUS_BAD_KEY, 11);
VALUE(MX_STATUS_BAD_ENDPOINT, 12);
VALUE(MX_STATUS_BAD_RDMAWIN, 13);
VALUE(MX_STATUS_ABORTED, 14);
VALUE(MX_STATUS_EVENTQ_FULL, 15);
VALUE(MX_STATUS_NO_RESOURCES, 16);
/* enum mx_line_speed */
VALUE(MX_SPEED_2G, 0);
VALUE(MX_SPEED_10G, 1);
VALUE(MX_SPEED_OPEN_MX, 2);
/* enum mx_net_type */
VALUE(MX_NET_MYRI, 0);
VALUE(MX_NET_ETHER, 1);
/* enum mx_get_info_key */
VALUE(MX_NIC_COUNT, 1);
VALUE(MX_NIC_IDS, 2);
VALUE(MX_MAX_NATIVE_ENDPOINTS, 3);
VALUE(MX_NATIVE_REQUESTS, 4);
VALUE(MX_COUNTERS_COUNT, 5);
VALUE(MX_COUNTERS_LABELS, 6);
VALUE(MX_COUNTERS_VALUES, 7);
VALUE(MX_PRODUCT_CODE, 8);
VALUE(MX_PART_NUMBER, 9);
VALUE(MX_SERIAL_NUMBER, 10);
VALUE(MX_PORT_COUNT, 11);
VALUE(MX_PIO_SEND_MAX, 12);
VALUE(MX_COPY_SEND_MAX, 13);
VALUE(MX_NUMA_NODE, 14);
VALUE(MX_NET_TYPE, 15);
VALUE(MX_LINE_SPEED, 16);
/* enum mx_unexp_handler_action */
VALUE(MX_RECV_CONTINUE, 0);
VALUE(MX_RECV_FINISHED, 1);
/* constants */
VALUE(MX_API, 0x301);
VALUE(MX_MAX_STR_LEN, 0x80);
VALUE(MX_SIZEOF_ADDR, 0x10);
VALUE(MX_ANY_NIC, 0xffffffffu);
VALUE(MX_ANY_ENDPOINT, 0xffffffffu);
VALUE(MX_INFINITE, 0x0);
VALUE(MX_CONTEXT_ID_BITS_MAX, 0x10);
VALUE(MX_MAX_SEGMENTS, 0x100);
VALUE(MX_MATCH_MASK_NONE, 0xffffffffffffffffull);
VALUE(MX_MAX_HOSTNAME_LEN, 0x50);
VALUE(MX_HAS_NET_TYPE, 1);
VALUE(MX_U32(UINT64_C(0x0123456789abcdef)), 0x01234567u);
VALUE(MX_L32(UINT64_C(0x0123456789abcdef)), 0x89abcdefu);
VALUE(MX__INVALID_HANDLE, -1);
VALUE(MX_HAS_ICONNECT_V2, 0x1);

_Static_assert(_Generic(MX_MATCH_MASK_NONE, uint64_t: 1, default: 0), "match bits have 64 bits");

/* ---- functions ---- */

SIGNATURE(mx_return_t, mx__init_api, int);
SIGNATURE(mx_return_t, mx_finalize, void);
SIGNATURE(mx_error_handler_t, mx_set_error_handler, mx_error_handler_t);
SIGNATURE(mx_return_t, mx_open_endpoint, uint32_t, uint32_t, uint32_t, mx_param_t *,
          uint32_t, mx_endpoint_t *);
SIGNATURE(mx_return_t, mx_close_endpoint, mx_endpoint_t);
SIGNATURE(mx_return_t, mx_wakeup, mx_endpoint_t);
SIGNATURE(mx_return_t, mx_disable_progression, mx_endpoint_t);
SIGNATURE(mx_return_t, mx_reenable_progression, mx_endpoint_t);
SIGNATURE(mx_return_t, mx_isend, mx_endpoint_t, mx_segment_t *, uint32_t,
          mx_endpoint_addr_t, uint64_t, void *, mx_request_t *);
SIGNATURE(mx_return_t, mx_issend, mx_endpoint_t, mx_segment_t *, uint32_t,
          mx_endpoint_addr_t, uint64_t, void *, mx_request_t *);
SIGNATURE(mx_return_t, mx_irecv, mx_endpoint_t, mx_segment_t *, uint32_t, uint64_t,
          uint64_t, void *, mx_request_t *);
SIGNATURE(mx_return_t, mx_cancel, mx_endpoint_t, mx_request_t *, uint32_t *);
SIGNATURE(mx_return_t, mx_test, mx_endpoint_t, mx_request_t *, mx_status_t *, uint32_t *);
SIGNATURE(mx_return_t, mx_wait, mx_endpoint_t, mx_request_t *, uint32_t, mx_status_t *,
          uint32_t *);
SIGNATURE(mx_return_t, mx_test_any, mx_endpoint_t, uint64_t, uint64_t, mx_status_t *,
          uint32_t *);
SIGNATURE(mx_return_t, mx_wait_any, mx_endpoint_t, uint32_t, uint64_t, uint64_t, mx_status_t *,
          uint32_t *);
SIGNATURE(mx_return_t, mx_ipeek, mx_endpoint_t, mx_request_t *, uint32_t *);
SIGNATURE(mx_return_t, mx_peek, mx_endpoint_t, uint32_t, mx_request_t *, uint32_t *);
SIGNATURE(mx_return_t, mx_iprobe, mx_endpoint_t, uint64_t, uint64_t, mx_status_t *, uint32_t *);
SIGNATURE(mx_return_t, mx_probe, mx_endpoint_t, uint32_t, uint64_t, uint64_t, mx_status_t *,
          uint32_t *);
SIGNATURE(mx_return_t, mx_ibuffered, mx_endpoint_t, mx_request_t *, uint32_t *);
SIGNATURE(mx_return_t, mx_context, mx_request_t *, void **);
SIGNATURE(mx_return_t, mx_get_info, mx_endpoint_t, mx_get_info_key_t, void *, uint32_t,
          void *, uint32_t);
SIGNATURE(mx_return_t, mx_hostname_to_nic_id, char *, uint64_t *);
SIGNATURE(mx_return_t, mx_board_number_to_nic_id, uint32_t, uint64_t *);
SIGNATURE(mx_return_t, mx_nic_id_to_board_number, uint64_t, uint32_t *);
SIGNATURE(mx_return_t, mx_nic_id_to_hostname, uint64_t, char *);
SIGNATURE(mx_return_t, mx_connect, mx_endpoint_t, uint64_t, uint32_t, uint32_t, uint32_t,
          mx_endpoint_addr_t *);
SIGNATURE(mx_return_t, mx_decompose_endpoint_addr, mx_endpoint_addr_t, uint64_t *, uint32_t *);
SIGNATURE(mx_return_t, mx_get_endpoint_addr, mx_endpoint_t, mx_endpoint_addr_t *);
SIGNATURE(const char *, mx_strerror, mx_return_t);
SIGNATURE(const char *, mx_strstatus, mx_status_code_t);
SIGNATURE(mx_return_t, mx_register_unexp_callback, mx_endpoint_t, mx_matching_callback_t,
          void *);
SIGNATURE(mx_return_t, mx_iput, mx_endpoint_t, void *, uint32_t, mx_endpoint_addr_t,
          uint64_t, void *, mx_request_t *);
SIGNATURE(mx_return_t, mx_iget, mx_endpoint_t, void *, uint32_t, mx_endpoint_addr_t,
          uint64_t, void *, mx_request_t *);
SIGNATURE(mx_return_t, mx_buffered, mx_endpoint_t, mx_request_t *, uint32_t, uint32_t *);
SIGNATURE(mx_return_t, mx_iconnect, mx_endpoint_t, uint64_t, uint32_t, uint32_t, uint64_t,
          void *, mx_request_t *);
SIGNATURE(mx_return_t, mx_disconnect, mx_endpoint_t, mx_endpoint_addr_t);
SIGNATURE(mx_return_t, mx_register_unexp_handler, mx_endpoint_t, mx_unexp_handler_t, void *);
SIGNATURE(mx_return_t, mx_forget, mx_endpoint_t, mx_request_t *);
SIGNATURE(mx_return_t, mx_progress, mx_endpoint_t);
SIGNATURE(mx_return_t, mx_set_endpoint_addr_context, mx_endpoint_addr_t, void *);
SIGNATURE(mx_return_t, mx_get_endpoint_addr_context, mx_endpoint_addr_t, void **);
SIGNATURE(mx_return_t, mx_set_request_timeout, mx_endpoint_t, mx_request_t, uint32_t);
SIGNATURE(mx_return_t, mx_decompose_endpoint_addr2, mx_endpoint_addr_t, uint64_t *, uint32_t *,
          uint32_t *);
SIGNATURE(mx_return_t, mx__get_mapper_state, mx_endpt_handle_t, mx_mapper_state_t *);
SIGNATURE(mx_return_t, mx_open_board, int, mx_endpt_handle_t *);

/* ---- function types and data ---- */

_Static_assert(_Generic((mx_error_handler_t)0, mx_return_t (*)(char *, mx_return_t): 1, default: 0),
               "mx_error_handler_t has another signature");
_Static_assert(_Generic((mx_matching_callback_t)0, void (*)(void *, uint64_t, int): 1, default: 0),
               "mx_matching_callback_t has another signature");
_Static_assert(_Generic((mx_unexp_handler_t)0,
                        mx_unexp_handler_action_t (*)(void *, mx_endpoint_addr_t, uint64_t,
                                                      uint32_t, void *): 1, default: 0),
               "mx_unexp_handler_t has another signature");
/* A declaration repeated is an error when the types differ. */
extern const mx_error_handler_t MX_ERRORS_ARE_FATAL;
extern const mx_error_handler_t MX_ERRORS_RETURN;
/* In no header: old MPI libraries declare it themselves. */
int mx__regcache_clean(void *ptr, size_t len);

/* ---- what only a running program shows ---- */

#define LINKED(function) {#function, (void (*)(void))(function)}
static const struct {
    const char *name;
    void (*function)(void);
} linked[] = {
    LINKED(mx__init_api),
    LINKED(mx_finalize),
    LINKED(mx_set_error_handler),
    LINKED(mx_open_endpoint),
    LINKED(mx_close_endpoint),
    LINKED(mx_wakeup),
    LINKED(mx_disable_progression),
    LINKED(mx_reenable_progression),
    LINKED(mx_isend),
    LINKED(mx_issend),
    LINKED(mx_irecv),
    LINKED(mx_cancel),
    LINKED(mx_test),
    LINKED(mx_wait),
    LINKED(mx_test_any),
    LINKED(mx_wait_any),
    LINKED(mx_ipeek),
    LINKED(mx_peek),
    LINKED(mx_iprobe),
    LINKED(mx_probe),
    LINKED(mx_ibuffered),
    LINKED(mx_context),
    LINKED(mx_get_info),
    LINKED(mx_hostname_to_nic_id),
    LINKED(mx_board_number_to_nic_id),
    LINKED(mx_nic_id_to_board_number),
    LINKED(mx_nic_id_to_hostname),
    LINKED(mx_connect),
    LINKED(mx_decompose_endpoint_addr),
    LINKED(mx_get_endpoint_addr),
    LINKED(mx_strerror),
    LINKED(mx_strstatus),
    LINKED(mx_register_unexp_callback),
    LINKED(mx_iput),
    LINKED(mx_iget),
    LINKED(mx_buffered),
    LINKED(mx_iconnect),
    LINKED(mx_disconnect),
    LINKED(mx_register_unexp_handler),
    LINKED(mx_forget),
    LINKED(mx_progress),
    LINKED(mx_set_endpoint_addr_context),
    LINKED(mx_get_endpoint_addr_context),
    LINKED(mx_set_request_timeout),
    LINKED(mx_decompose_endpoint_addr2),
    LINKED(mx__get_mapper_state),
    LINKED(mx_open_board),
    LINKED(mx__regcache_clean),
};

static void every_function_is_there(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof linked / sizeof linked[0]; i++)
        if (linked[i].function == NULL)
            fail_msg("%s", linked[i].name);
    assert_int_equal(mx__regcache_clean(NULL, 0), 0);
    assert_int_equal(mx__regcache_clean(&state, sizeof state), 0);
}

static void the_two_handlers_are_data_symbols(void **state)
{
    char text[] = "text";

    (void)state;
    assert_true(MX_ERRORS_ARE_FATAL != NULL && MX_ERRORS_RETURN != NULL);
    assert_true(MX_ERRORS_ARE_FATAL != MX_ERRORS_RETURN);
    assert_int_equal(MX_ERRORS_RETURN(text, MX_BUSY), MX_BUSY);
    assert_int_equal(MX_ERRORS_RETURN(NULL, MX_SUCCESS), MX_SUCCESS);
}

static void init_is_a_macro_that_passes_the_version_on(void **state)
{
    (void)state;
#ifndef mx_init
#error "mx_init is a macro"
#endif
    assert_int_equal(mx_init(), MX_SUCCESS);
    assert_int_equal(mx_finalize(), MX_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_is_there),
        cmocka_unit_test(the_two_handlers_are_data_symbols),
        cmocka_unit_test(init_is_a_macro_that_passes_the_version_on),
    };
    const int count = sizeof tests / sizeof tests[0];
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    printf("tally %d passed %d failed 0 skipped\n", count - failed, failed);
    return failed == 0 ? 0 : 1;
}
