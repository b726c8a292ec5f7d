//! The C types that cross the boundary, laid out as the host lays them out.
//!
//! ```text
//!   bmi_method_addr (24; 40)          bmi_method_unexpected_info (40)
//!    0 method_type  int                0 error_code  i32
//!    4 ref_count    int (*)            8 addr        bmi_method_addr*
//!    8 method_data  void*             16 buffer      void*
//!   16 parent       void* (host's)    24 size        i64
//!   24 primary, 32 secondary (*)      32 tag         i32
//!
//!   (*) the stand-alone BMI only      method_drop_addr_query (16)
//!                                      0 addr   8 response
//!
//!                                     bmi_mx_credits, bmi_mx_peer_credits: 0 size, then more
//! ```
//!
//! Owns: sizes and offsets, asserted at compile time.

use libc::{c_char, c_int, c_void};
use mx_sys::layout;
use std::ptr;

/// Size of a data region, in bytes.
pub type bmi_size_t = i64;
/// The application's tag of a message.
pub type bmi_msg_tag_t = i32;
/// Number of a context in which operations complete, 0 to 15.
pub type bmi_context_id = i64;
/// Id of a posted operation.
pub type bmi_op_id_t = i64;
/// 0, or an error code; always negative when returned by this library.
pub type bmi_error_code_t = i32;
/// The host's id of a peer.
pub type BMI_addr_t = i64;
/// `BMI_SEND` or `BMI_RECV`. A plain number here, so that an invalid value is not undefined behaviour.
pub type bmi_op_type = c_int;
/// `BMI_PRE_ALLOC` or `BMI_EXT_ALLOC`.
pub type bmi_buffer_type = c_int;
/// The host's hint list, which this library ignores.
pub type bmi_hint = *mut c_void;

/// A peer, shared by host and method. The method allocates it; the host passes its address in every call and writes
/// `method_type` (listen address only) and `parent`.
///
/// The struct is the union of all hosts' layouts: OrangeFS's struct ends with `parent` and has padding in place of
/// `ref_count`.
#[repr(C)]
#[derive(Debug)]
pub struct bmi_method_addr {
    /// The `method_id` passed to `initialize`: the host's index of this method.
    pub method_type: c_int,
    /// Number of the host's references: 1. The host itself does not read it.
    pub ref_count: c_int,
    /// Belongs to the method.
    pub method_data: *mut c_void,
    /// Belongs to the host.
    pub parent: *mut c_void,
    /// Belongs to the host, for lists of addresses.
    pub primary: *mut Self,
    /// Belongs to the host, for lists of addresses.
    pub secondary: *mut Self,
}

impl bmi_method_addr {
    /// Makes an object that the host has not written to.
    pub const fn new(method_type: c_int) -> Self {
        Self {
            method_type,
            ref_count: 1,
            method_data: ptr::null_mut(),
            parent: ptr::null_mut(),
            primary: ptr::null_mut(),
            secondary: ptr::null_mut(),
        }
    }
}

/// An unexpected message as `testunexpected` returns it.
#[repr(C)]
#[derive(Debug)]
pub struct bmi_method_unexpected_info {
    /// 0, or the error of this message (negative).
    pub error_code: bmi_error_code_t,
    /// Address object of the sender.
    pub addr: *mut bmi_method_addr,
    /// Contents, to be freed with `unexpected_free`.
    pub buffer: *mut c_void,
    /// Length in bytes.
    pub size: bmi_size_t,
    /// Tag of the message.
    pub tag: bmi_msg_tag_t,
}

/// Argument of `get_info(BMI_DROP_ADDR_QUERY)`.
#[repr(C)]
#[derive(Debug)]
pub struct method_drop_addr_query {
    /// Address in question.
    pub addr: *mut bmi_method_addr,
    /// Answer: 1 if the method no longer needs the address, else 0.
    pub response: c_int,
}

/// The host's functions. Found with `dlsym` in a host that exports them under their usual names; any other program may
/// pass them to `bmi_mx_set_host`.
///
/// A NULL member is looked up with `dlsym`, except that `reg_addr` and `forget_addr` are looked up only if both are
/// NULL. `size` is `sizeof(struct bmi_mx_host)` as the caller compiled it, so that later versions can append members.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bmi_mx_host {
    /// `sizeof(struct bmi_mx_host)`.
    pub size: usize,
    /// Registers a peer that connected to this process: returns the host's id for the peer, or 0 if the host is out of
    /// memory. Called from inside `testunexpected`, `testcontext`, `testsome` and `test` only, at most once per
    /// address, with none of the library's locks held.
    pub reg_addr: Option<unsafe extern "C" fn(addr: *mut bmi_method_addr) -> BMI_addr_t>,
    /// Reports that the peer with this id died; the host may ask `BMI_DROP_ADDR_QUERY` about it. Returns 0.
    pub forget_addr: Option<unsafe extern "C" fn(addr: BMI_addr_t) -> c_int>,
    /// Writes one line of the log, without a newline. `level` is 1 error, 2 warning, 3 information, 4 debug, 5 trace.
    /// Called from any thread that calls this library, and from the library's own, with none of its locks held. The
    /// thread continues when it returns.
    pub log: Option<unsafe extern "C" fn(level: c_int, line: *const c_char)>,
}

/// Argument of `get_info(BMI_MX_GET_CREDITS)`: the method's current levels, and its counters since `initialize`. A
/// credit is 512 bytes for messages without a receive; a message's bookkeeping takes 320 bytes.
///
/// `total` = `free` + `lent` + `drawn` + `copies` + `tombstones`. Later versions append members.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct bmi_mx_credits {
    /// In: `sizeof(struct bmi_mx_credits)`. Out: number of bytes written.
    pub size: usize,
    /// All credits: `MX_UNEXPECTED_BYTES`.
    pub total: u64,
    /// Free credits.
    pub free: u64,
    /// Credits lent to peers.
    pub lent: u64,
    /// Credits held by messages that were fetched, or are being fetched.
    pub drawn: u64,
    /// Credits held by copies of this process's sends.
    pub copies: u64,
    /// Credits held by messages of lost peers.
    pub tombstones: u64,
    /// Connected peers.
    pub peers: u64,
    /// Peers that wait for more credits.
    pub waiting_peers: u64,
    /// Peers that have been asked to return credits and have not answered.
    pub asked_peers: u64,
    /// Messages received.
    pub messages: u64,
    /// Violations of the credit rules; each has ended a connection.
    pub violations: u64,
    /// Times that a message could not be fetched for lack of credits.
    pub draws_refused: u64,
    /// Requests of peers for more credits.
    pub wants: u64,
    /// Credits lent to peers since they connected.
    pub granted: u64,
    /// Credits that peers were asked to return.
    pub revoked: u64,
    /// Credits that peers returned.
    pub returned: u64,
    /// Credits taken back without asking.
    pub narrowed: u64,
    /// Times that earlier use of credits was given less weight.
    pub epochs: u64,
    /// Times that sends to a peer had to wait for credits.
    pub credit_stalls: u64,
    /// Peers to which sends wait for credits now.
    pub peers_without_credits: u64,
    /// Operations posted and not reported.
    pub operations: u64,
    /// Unexpected messages that `testunexpected` can return.
    pub ready: u64,
    /// Unexpected messages being fetched.
    pub coming: u64,
    /// Peers with unexpected messages that wait until there is room to fetch them.
    pub held: u64,
    /// Bytes of unexpected messages received or being fetched.
    pub unexpected_bytes: u64,
    /// Bytes of messages that arrived before their receives.
    pub early_bytes: u64,
    /// Bytes lent to peers or used by messages, bookkeeping included.
    pub used_bytes: u64,
    /// Limit of `used_bytes` (`MX_UNEXPECTED_BYTES`), which two messages of each peer may exceed.
    pub limit_bytes: u64,
}

/// Argument of `get_info(BMI_MX_GET_PEER_CREDITS)`: the credits between one peer and this process. For a peer that is
/// not connected all members but `send_waiting` are 0. Later versions append members.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bmi_mx_peer_credits {
    /// In: `sizeof(struct bmi_mx_peer_credits)`. Out: number of bytes written.
    pub size: usize,
    /// In: any address of the peer.
    pub addr: *mut bmi_method_addr,
    /// `BMI_MX_PEER_INIT`, `_WAIT` or `_READY`.
    pub state: c_int,
    /// Credits lent to the peer, used or not.
    pub credit_limit: u32,
    /// Lent credits that the peer can use now, as far as is known here.
    pub free: u32,
    /// Credits used by the peer's messages that have not been received.
    pub waiting: u32,
    /// Credits of received messages that have not been returned to the peer yet.
    pub owed: u32,
    /// Further credits that the peer requests.
    pub wanted: u32,
    /// 1 if the peer has been asked to return credits and has not answered.
    pub asked: u32,
    /// Free credits lent by the peer.
    pub send_free: u32,
    /// Operations that wait for the connection, and sends that wait for the link or for credits.
    pub send_waiting: u32,
    /// 1 if such a send waits for credits.
    pub send_stalled: u32,
}

const _: () = {
    layout!(bmi_method_addr: 40 align 8,
        method_type at 0, ref_count at 4, method_data at 8, parent at 16, primary at 24,
        secondary at 32);
    layout!(bmi_method_unexpected_info: 40 align 8,
        error_code at 0, addr at 8, buffer at 16, size at 24, tag at 32);
    layout!(method_drop_addr_query: 16 align 8, addr at 0, response at 8);
    // Members have no padding between them, so that any number of whole ones can be written.
    layout!(bmi_mx_credits: 232 align 8, total at 8, limit_bytes at 224);
    layout!(bmi_mx_peer_credits: 56 align 8, addr at 8, state at 16, send_stalled at 52);
    layout!(bmi_mx_host: 32 align 8, reg_addr at 8, forget_addr at 16, log at 24);
};
