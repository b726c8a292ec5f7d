//! Every function with every pointer null, misaligned or stale: the code, and no output written.
//!
//! ```text
//!   one endpoint, error handler MX_ERRORS_RETURN
//!     call(good, good, NULL) --> code        outputs keep their pattern
//! ```
//!
//! Calls with good arguments are tested from C (`c_tests/mx`).

use crate::own_process::in_own_process;
use libc::{c_char, c_void};
use mx_sys::{nic, published};
use myriexpress_api::abi::{
    MX_ANY_ENDPOINT, MX_ANY_NIC, MX_API, MX_MAX_STR_LEN, mx_endpoint_addr_t, mx_endpoint_t,
    mx_request_t, mx_segment_t, mx_status_t,
};
use myriexpress_api::error::Code;
use myriexpress_api::exports::{
    complete::*, endpoint::*, kept::*, lifecycle::*, names::*, peer::*, post::*,
};
use myriexpress_api::handles::Address;
use myriexpress_api::info::Key;
use std::ptr::{null_mut, without_provenance_mut};

const TIMEOUT: u32 = 1;

/// Outputs, filled with a pattern.
struct Outputs {
    request: mx_request_t,
    status: mx_status_t,
    addr: mx_endpoint_addr_t,
    context: *mut c_void,
    wide: u64,
    narrow: u32,
    narrow2: u32,
    text: [c_char; 80],
}

const STATUS: mx_status_t = mx_status_t {
    code: 77,
    source: Address::NONE,
    match_info: 77,
    msg_length: 77,
    xfer_length: 77,
    context: 77,
};

impl Outputs {
    fn new() -> Self {
        Self {
            request: null_mut(),
            status: STATUS,
            addr: Address::NONE,
            context: without_provenance_mut(77),
            wide: 77,
            narrow: 77,
            narrow2: 77,
            text: [77; 80],
        }
    }

    fn assert_untouched(&self, what: &str) {
        assert!(self.request.is_null(), "{what}");
        assert_eq!(self.status, STATUS, "{what}");
        assert_eq!(self.addr, Address::NONE, "{what}");
        assert_eq!(self.context.addr(), 77, "{what}");
        assert_eq!(
            (self.wide, self.narrow, self.narrow2),
            (77, 77, 77),
            "{what}"
        );
        assert_eq!(self.text, [77; 80], "{what}");
    }
}

/// Makes calls, each with fresh outputs, and checks its code.
macro_rules! refused {
    ($out:ident: $($code:ident = $call:expr;)*) => {$({
        #[allow(unused_mut, unused_variables)]
        let mut $out = Outputs::new();
        // SAFETY: pointers are valid, or null, which is the case under test.
        let code = unsafe { $call };
        assert_eq!(code, Code::$code as u32, stringify!($call));
        $out.assert_untouched(stringify!($call));
    })*};
}

/// Returns a pointer to `value` that is off by a byte.
fn odd<T>(value: &mut T) -> *mut T {
    (&raw mut *value).cast::<u8>().wrapping_add(1).cast()
}

/// Opens an endpoint in a process where failures are returned.
fn open() -> mx_endpoint_t {
    let mut ep: mx_endpoint_t = null_mut();
    // SAFETY: a handler of the library's, and a place to write to.
    unsafe {
        mx_set_error_handler(MX_ERRORS_RETURN);
        mx__init_api(MX_API);
        let code = mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, 1, null_mut(), 0, &raw mut ep);
        assert_eq!(code, 0);
    }
    ep
}

/// In a separate process: it ends by finalizing the library.
#[test]
fn wrong_arguments_get_their_code_and_outputs_stay() {
    in_own_process!();
    let nic = nic::own_nic(None).unwrap().0;
    let ep = open();
    outputs_that_are_missing(ep, nic);
    requests_that_are_none(ep);
    messages_that_make_no_sense(ep);
    names_and_questions_that_make_no_sense(ep);
    for gone in [
        null_mut(),
        without_provenance_mut(usize::MAX),
        without_provenance_mut(ep.addr() + 1),
    ] {
        endpoints_that_are_none(gone, nic);
    }
    // SAFETY: no pointers but the handle.
    assert_eq!(unsafe { mx_close_endpoint(ep) }, 0);
    endpoints_that_are_none(ep, nic);
    // SAFETY: no pointers.
    assert_eq!(unsafe { mx_finalize() }, 0);
    before_init();
}

fn outputs_that_are_missing(ep: mx_endpoint_t, nic: u64) {
    let null = null_mut();
    let o = Address::NONE;
    refused! { out:
        Failure = mx_open_endpoint(0, MX_ANY_ENDPOINT, 1, null_mut(), 0, null_mut());
        Failure = mx_test(ep, &raw mut out.request, null_mut(), &raw mut out.narrow);
        Failure = mx_test(ep, &raw mut out.request, &raw mut out.status, null);
        Failure = mx_test(ep, &raw mut out.request, odd(&mut out.status), &raw mut out.narrow);
        Failure = mx_wait(ep, &raw mut out.request, TIMEOUT, null_mut(), &raw mut out.narrow);
        Failure = mx_wait(ep, &raw mut out.request, TIMEOUT, &raw mut out.status, null);
        Failure = mx_test_any(ep, 0, 0, null_mut(), &raw mut out.narrow);
        Failure = mx_test_any(ep, 0, 0, &raw mut out.status, null);
        Failure = mx_wait_any(ep, TIMEOUT, 0, 0, null_mut(), &raw mut out.narrow);
        Failure = mx_wait_any(ep, TIMEOUT, 0, 0, &raw mut out.status, null);
        BadRequest = mx_ipeek(ep, null_mut(), &raw mut out.narrow);
        Failure = mx_ipeek(ep, &raw mut out.request, null);
        BadRequest = mx_peek(ep, TIMEOUT, null_mut(), &raw mut out.narrow);
        Failure = mx_peek(ep, TIMEOUT, &raw mut out.request, null);
        Failure = mx_iprobe(ep, 0, 0, &raw mut out.status, null);
        Failure = mx_probe(ep, TIMEOUT, 0, 0, &raw mut out.status, null);
        Failure = mx_ibuffered(ep, &raw mut out.request, null);
        Failure = mx_buffered(ep, &raw mut out.request, TIMEOUT, null);
        Failure = mx_context(&raw mut out.request, null_mut());
        Failure = mx_cancel(ep, &raw mut out.request, null);
        Failure = mx_connect(ep, nic, 0, 1, TIMEOUT, null_mut());
        Failure = mx_iconnect(ep, nic, 0, 1, 0, null_mut(), odd(&mut out.request));
        Failure = mx_get_endpoint_addr(ep, null_mut());
        Failure = mx_get_endpoint_addr_context(o, null_mut());
        Failure = mx_board_number_to_nic_id(0, null_mut());
        Failure = mx_nic_id_to_board_number(nic, null);
        BadHostnameArgs = mx_nic_id_to_hostname(nic, null_mut());
        BadHostnameArgs = mx_hostname_to_nic_id(c"localhost".as_ptr().cast_mut(), null_mut());
        BadInfoVal = mx_get_info(ep, 1, null_mut(), 0, null_mut(), 4);
        Failure = mx_open_board(0, null_mut());
        Failure = mx__get_mapper_state(0, null_mut());
        // Invalid addresses have no properties.
        BadEndpoint = mx_decompose_endpoint_addr(o, &raw mut out.wide, &raw mut out.narrow);
        BadEndpoint = mx_decompose_endpoint_addr(o, null_mut(), null);
        BadEndpoint = mx_decompose_endpoint_addr2(o, null_mut(), null, null);
        BadEndpoint = mx_set_endpoint_addr_context(o, null_mut());
        BadEndpoint = mx_get_endpoint_addr_context(o, &raw mut out.context);
        BadEndpoint = mx_disconnect(ep, o);
    }
}

fn requests_that_are_none(ep: mx_endpoint_t) {
    refused! { out:
        BadRequest = mx_test(ep, null_mut(), &raw mut out.status, &raw mut out.narrow);
        BadRequest = mx_test(ep, odd(&mut out.request), &raw mut out.status, &raw mut out.narrow);
        BadRequest = mx_wait(ep, null_mut(), TIMEOUT, &raw mut out.status, &raw mut out.narrow);
        BadRequest = mx_ibuffered(ep, null_mut(), &raw mut out.narrow);
        BadRequest = mx_buffered(ep, null_mut(), TIMEOUT, &raw mut out.narrow);
        BadRequest = mx_context(null_mut(), &raw mut out.context);
        BadRequest = mx_cancel(ep, null_mut(), &raw mut out.narrow);
        BadRequest = mx_forget(ep, null_mut());
    }
    for word in [0, 1, 0x400, usize::MAX, usize::MAX - 0x3ff] {
        let mut request: mx_request_t = without_provenance_mut(word);
        let held = &raw mut request;
        refused! { out:
            BadRequest = mx_test(ep, held, &raw mut out.status, &raw mut out.narrow);
            BadRequest = mx_wait(ep, held, TIMEOUT, &raw mut out.status, &raw mut out.narrow);
            BadRequest = mx_ibuffered(ep, held, &raw mut out.narrow);
            BadRequest = mx_buffered(ep, held, TIMEOUT, &raw mut out.narrow);
            BadRequest = mx_context(held, &raw mut out.context);
            BadRequest = mx_cancel(ep, held, &raw mut out.narrow);
            BadRequest = mx_forget(ep, held);
        }
        if word != 0 {
            refused! { out:
                BadRequest = mx_set_request_timeout(ep, request, 5);
            }
        }
        assert_eq!(request.addr(), word);
    }
}

fn messages_that_make_no_sense(ep: mx_endpoint_t) {
    let mut own = Address::NONE;
    // SAFETY: a place to write to.
    assert_eq!(unsafe { mx_get_endpoint_addr(ep, &raw mut own) }, 0);
    let mut nothing = mx_segment_t {
        segment_ptr: null_mut(),
        segment_length: 1,
    };
    let one = &raw mut nothing;
    let none = null_mut();
    refused! { out:
        BadSegCnt = mx_isend(ep, one, 257, own, 0, null_mut(), &raw mut out.request);
        BadSegCnt = mx_issend(ep, none, 257, own, 0, null_mut(), &raw mut out.request);
        BadSegCnt = mx_irecv(ep, one, u32::MAX, 0, 0, null_mut(), &raw mut out.request);
        BadSegList = mx_isend(ep, none, 1, own, 0, null_mut(), &raw mut out.request);
        BadSegList = mx_issend(ep, odd(&mut nothing), 1, own, 0, null_mut(), &raw mut out.request);
        BadSegList = mx_irecv(ep, none, 256, 0, 0, null_mut(), &raw mut out.request);
        BadSegMem = mx_isend(ep, one, 1, own, 0, null_mut(), &raw mut out.request);
        BadSegMem = mx_issend(ep, one, 1, own, 0, null_mut(), &raw mut out.request);
        BadSegMem = mx_irecv(ep, one, 1, 0, 0, null_mut(), &raw mut out.request);
        Failure = mx_isend(ep, none, 0, own, 0, null_mut(), odd(&mut out.request));
        BadEndpoint = mx_isend(ep, none, 0, Address::NONE, 0, null_mut(), &raw mut out.request);
        BadEndpoint = mx_issend(ep, none, 0, Address::NONE, 0, null_mut(), null_mut());
        BadMatchMask = mx_irecv(ep, none, 0, 3, 2, null_mut(), &raw mut out.request);
        BadMatchMask = mx_test_any(ep, 3, 2, &raw mut out.status, &raw mut out.narrow);
        BadMatchMask = mx_wait_any(ep, TIMEOUT, 3, 2, &raw mut out.status, &raw mut out.narrow);
        BadMatchMask = mx_iprobe(ep, 3, 2, &raw mut out.status, &raw mut out.narrow);
        BadMatchMask = mx_probe(ep, TIMEOUT, 3, 2, &raw mut out.status, &raw mut out.narrow);
        NicNotFound = mx_iconnect(ep, 0, 0, 1, 0, null_mut(), &raw mut out.request);
        NicNotFound = mx_connect(ep, 0, 0, 1, TIMEOUT, &raw mut out.addr);
        Failure = mx_iput(ep, null_mut(), 0, own, 0, null_mut(), &raw mut out.request);
        Failure = mx_iget(ep, null_mut(), 0, own, 0, null_mut(), &raw mut out.request);
        Failure = mx_register_unexp_callback(ep, None, null_mut());
    }
}

fn names_and_questions_that_make_no_sense(ep: mx_endpoint_t) {
    let long = vec![b'x'; 4096];
    let long = long.as_ptr().cast_mut().cast::<c_char>();
    let (mut board, mut absent, mut small) = (u64::MAX, 1000_u32, 250_u8);
    let board = (&raw mut board).cast::<c_void>();
    let absent = (&raw mut absent).cast::<c_void>();
    let small = (&raw mut small).cast::<c_void>();
    let labels = (published::COUNT * MX_MAX_STR_LEN - 1) as u32;
    let values = (published::COUNT * 4 - 1) as u32;
    let mut mapper = 77_u64;
    let mut room = vec![77_u8; labels as usize];
    let room = room.as_mut_ptr().cast::<c_void>();
    refused! { out:
        BadHostnameArgs = mx_hostname_to_nic_id(null_mut(), &raw mut out.wide);
        BadHostnameArgs = mx_hostname_to_nic_id(long, &raw mut out.wide);
        BadHostnameArgs = mx_hostname_to_nic_id(c"\xff".as_ptr().cast_mut(), &raw mut out.wide);
        HostNotFound = mx_hostname_to_nic_id(c"".as_ptr().cast_mut(), &raw mut out.wide);
        HostNotFound = mx_nic_id_to_hostname(0, out.text.as_mut_ptr());
        NicNotFound = mx_nic_id_to_board_number(0, &raw mut out.narrow);
        BoardUnknown = mx_board_number_to_nic_id(u32::MAX, &raw mut out.wide);
        BoardUnknown = mx_open_board(-1, (&raw mut out.narrow).cast());
        BoardUnknown = mx_open_endpoint(9999, 0, 0, null_mut(), 0, (&raw mut out.request).cast());
        BadEndpoint = mx_open_endpoint(0, 70_000, 0, null_mut(), 0, (&raw mut out.request).cast());
        BadParamList = mx_open_endpoint(0, 0, 0, null_mut(), 1, (&raw mut out.request).cast());
        BadInfoKey = mx_get_info(ep, 0, null_mut(), 0, (&raw mut out.wide).cast(), 8);
        BadInfoKey = mx_get_info(ep, 17, null_mut(), 0, (&raw mut out.wide).cast(), 8);
        BadInfoKey = mx_get_info(ep, 9999, null_mut(), 0, (&raw mut out.wide).cast(), 8);
        BadInfoKey = mx_get_info(ep, u32::MAX, null_mut(), 0, (&raw mut out.wide).cast(), 8);
        BadInfoLength = mx_get_info(ep, 2, null_mut(), 0, (&raw mut out.wide).cast(), 7);
        BadInfoLength = mx_get_info(ep, 16, board, 2, (&raw mut out.wide).cast(), 8);
        BadInfoVal = mx_get_info(ep, 16, board, 1, (&raw mut out.wide).cast(), 8);
        BadInfoVal = mx_get_info(ep, 16, board, 4, (&raw mut out.wide).cast(), 8);
        BadInfoVal = mx_get_info(ep, 16, board, 8, (&raw mut out.wide).cast(), 8);
        BadInfoVal = mx_get_info(null_mut(), 16, absent, 4, (&raw mut out.wide).cast(), 8);
        BadInfoVal = mx_get_info(null_mut(), 16, small, 1, (&raw mut out.wide).cast(), 8);
        BadInfoLength = mx_get_info(ep, 16, absent, 3, (&raw mut out.wide).cast(), 8);
        BadInfoLength = mx_get_info(ep, Key::CountersLabels as u32, null_mut(), 0, room, labels);
        BadInfoLength = mx_get_info(ep, Key::CountersValues as u32, null_mut(), 0, room, values);
        BoardUnknown = mx_board_number_to_nic_id(1000, &raw mut out.wide);
        NicNotFound = mx_nic_id_to_board_number(0x0123_4567_89ab_cdef, &raw mut out.narrow);
        BoardUnknown = mx_open_board(1000, (&raw mut out.narrow).cast());
        BoardUnknown = mx__get_mapper_state(1000, (&raw mut mapper).cast());
    }
    for key in 1..=16 {
        refused! { out:
            BadInfoLength = mx_get_info(ep, key, null_mut(), 0, (&raw mut out.wide).cast(), 0);
            BadInfoLength = mx_get_info(ep, key, null_mut(), 0, (&raw mut out.wide).cast(), 1);
            BadInfoLength = mx_get_info(ep, key, null_mut(), 0, (&raw mut out.wide).cast(), 3);
            BadInfoVal = mx_get_info(ep, key, null_mut(), 0, null_mut(), 4);
        }
    }
}

fn endpoints_that_are_none(ep: mx_endpoint_t, nic: u64) {
    let none = null_mut();
    let no_address = Address::NONE;
    let mut request: mx_request_t = without_provenance_mut(0x401);
    let held = &raw mut request;
    refused! { out:
        BadEndpoint = mx_close_endpoint(ep);
        BadEndpoint = mx_wakeup(ep);
        BadEndpoint = mx_disable_progression(ep);
        BadEndpoint = mx_reenable_progression(ep);
        BadEndpoint = mx_progress(ep);
        BadEndpoint = mx_register_unexp_handler(ep, None, null_mut());
        BadEndpoint = mx_isend(ep, none, 0, no_address, 0, null_mut(), &raw mut out.request);
        BadEndpoint = mx_issend(ep, none, 0, no_address, 0, null_mut(), &raw mut out.request);
        BadEndpoint = mx_irecv(ep, none, 0, 0, 0, null_mut(), &raw mut out.request);
        BadEndpoint = mx_cancel(ep, held, &raw mut out.narrow);
        BadEndpoint = mx_forget(ep, held);
        BadEndpoint = mx_test(ep, held, &raw mut out.status, &raw mut out.narrow);
        BadEndpoint = mx_wait(ep, held, TIMEOUT, &raw mut out.status, &raw mut out.narrow);
        BadEndpoint = mx_test_any(ep, 0, 0, &raw mut out.status, &raw mut out.narrow);
        BadEndpoint = mx_wait_any(ep, TIMEOUT, 0, 0, &raw mut out.status, &raw mut out.narrow);
        BadEndpoint = mx_ipeek(ep, &raw mut out.request, &raw mut out.narrow);
        BadEndpoint = mx_peek(ep, TIMEOUT, &raw mut out.request, &raw mut out.narrow);
        BadEndpoint = mx_iprobe(ep, 0, 0, &raw mut out.status, &raw mut out.narrow);
        BadEndpoint = mx_probe(ep, TIMEOUT, 0, 0, &raw mut out.status, &raw mut out.narrow);
        BadEndpoint = mx_ibuffered(ep, held, &raw mut out.narrow);
        BadEndpoint = mx_buffered(ep, held, TIMEOUT, &raw mut out.narrow);
        BadEndpoint = mx_set_request_timeout(ep, null_mut(), 5);
        BadEndpoint = mx_connect(ep, nic, 0, 1, TIMEOUT, &raw mut out.addr);
        BadEndpoint = mx_iconnect(ep, nic, 0, 1, 0, null_mut(), &raw mut out.request);
        BadEndpoint = mx_disconnect(ep, no_address);
        BadEndpoint = mx_get_endpoint_addr(ep, &raw mut out.addr);
    }
    if !ep.is_null() {
        refused! { out:
            BadEndpoint = mx_get_info(ep, 1, null_mut(), 0, (&raw mut out.wide).cast(), 8);
        }
    }
}

fn before_init() {
    let any = MX_ANY_ENDPOINT;
    let here = c"localhost".as_ptr().cast_mut();
    refused! { out:
        NotInitialized = mx_finalize();
        NotInitialized = mx_open_endpoint(0, any, 1, null_mut(), 0, (&raw mut out.request).cast());
        NotInitialized = mx_hostname_to_nic_id(here, &raw mut out.wide);
        NotInitialized = mx_board_number_to_nic_id(0, &raw mut out.wide);
        NotInitialized = mx_nic_id_to_board_number(0, &raw mut out.narrow);
        NotInitialized = mx_nic_id_to_hostname(0, out.text.as_mut_ptr());
        NotInitialized = mx_get_info(null_mut(), 1, null_mut(), 0, (&raw mut out.wide).cast(), 8);
        NotInitialized = mx_open_board(0, (&raw mut out.narrow).cast());
    }
}
