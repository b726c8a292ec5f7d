/*
 * The library's calls on stacks of their own (../../support/stacks.h).
 *
 *     test ── mx_isend() ──► __wrap_mx_isend ──► stack ──► __real_mx_isend, the library's
 *
 * mk/mx_tests.mk makes the link editor wrap the functions listed here.
 */
#include "../../support/stacks.h"

/* Arguments beyond the function's own have any value. */
#define WRAP(name, is_large)                                                                                  \
    word __real_##name(word, word, word, word, word, word, word, word, word, word, word, word);               \
    word __wrap_##name(word, word, word, word, word, word, word, word, word, word, word, word);               \
    word __wrap_##name(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j,        \
                       word k, word l)                                                                        \
    {                                                                                                         \
        if (!are_stacks_wanted())                                                                             \
            return __real_##name(a, b, c, d, e, f, g, h, i, j, k, l);                                         \
        return on_stack(#name, is_large, (void (*)(void))__real_##name,                                       \
                        (const word[ARGUMENTS]){a, b, c, d, e, f, g, h, i, j, k, l});                         \
    }
#define LARGE(name) WRAP(name, true)
#define SMALL(name) WRAP(name, false)

LARGE(mx__init_api)
LARGE(mx_finalize)
LARGE(mx_open_endpoint)
LARGE(mx_close_endpoint)
SMALL(mx_board_number_to_nic_id)
SMALL(mx_buffered)
SMALL(mx_cancel)
SMALL(mx_connect)
SMALL(mx_context)
SMALL(mx_decompose_endpoint_addr)
SMALL(mx_decompose_endpoint_addr2)
SMALL(mx_disable_progression)
SMALL(mx_disconnect)
SMALL(mx_forget)
SMALL(mx_get_endpoint_addr)
SMALL(mx_get_endpoint_addr_context)
SMALL(mx_get_info)
SMALL(mx_hostname_to_nic_id)
SMALL(mx_ibuffered)
SMALL(mx_iconnect)
SMALL(mx_ipeek)
SMALL(mx_iprobe)
SMALL(mx_irecv)
SMALL(mx_isend)
SMALL(mx_issend)
SMALL(mx_nic_id_to_board_number)
SMALL(mx_nic_id_to_hostname)
SMALL(mx_peek)
SMALL(mx_probe)
SMALL(mx_progress)
SMALL(mx_reenable_progression)
SMALL(mx_register_unexp_callback)
SMALL(mx_register_unexp_handler)
SMALL(mx_set_endpoint_addr_context)
SMALL(mx_set_error_handler)
SMALL(mx_set_request_timeout)
SMALL(mx_strerror)
SMALL(mx_strstatus)
SMALL(mx_test)
SMALL(mx_test_any)
SMALL(mx_wait)
SMALL(mx_wait_any)
SMALL(mx_wakeup)
