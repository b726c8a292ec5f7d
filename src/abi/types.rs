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
//! Owns: sizes and offsets, checked below when this file is compiled.

use libc::{c_char, c_int, c_void};
use mx_sys::layout;
use std::ptr;

/// The size of a data region, in bytes.
pub type bmi_size_t = i64;
/// The application's tag of a message.
pub type bmi_msg_tag_t = i32;
/// Number of a context in which operations complete, 0 to 15.
pub type bmi_context_id = i64;
/// A posted operation.
pub type bmi_op_id_t = i64;
/// 0, or an error code: always negative when it comes out of this library.
pub type bmi_error_code_t = i32;
/// The host's own name for a peer.
pub type BMI_addr_t = i64;
/// `BMI_SEND` or `BMI_RECV`. A plain number here, so that a wrong value is not undefined.
pub type bmi_op_type = c_int;
/// `BMI_PRE_ALLOC` or `BMI_EXT_ALLOC`.
pub type bmi_buffer_type = c_int;
/// The host's hint list. Never looked at.
pub type bmi_hint = *mut c_void;

/// A peer, as host and method share it. The method allocates it; the host hands its address back
/// in every call and writes `method_type` (listen address only) and `parent`.
///
/// All that any host knows of it: that of OrangeFS ends with `parent` and has nothing for `ref_count`.
#[repr(C)]
#[derive(Debug)]
pub struct bmi_method_addr {
    /// The `method_id` that `initialize` was given: the host's index of this method.
    pub method_type: c_int,
    /// References of the host's: one. The host itself does not look at it.
    pub ref_count: c_int,
    /// The method's.
    pub method_data: *mut c_void,
    /// The host's.
    pub parent: *mut c_void,
    /// The host's, for lists of addresses.
    pub primary: *mut Self,
    /// The host's, for lists of addresses.
    pub secondary: *mut Self,
}

impl bmi_method_addr {
    /// An object that the host has not written into.
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

/// An unexpected message, as `testunexpected` gives it out.
#[repr(C)]
#[derive(Debug)]
pub struct bmi_method_unexpected_info {
    /// 0, or what went wrong with this message (negative).
    pub error_code: bmi_error_code_t,
    /// The sender.
    pub addr: *mut bmi_method_addr,
    /// Its bytes; to be given back with `unexpected_free`.
    pub buffer: *mut c_void,
    /// Its length.
    pub size: bmi_size_t,
    /// The tag it was sent with.
    pub tag: bmi_msg_tag_t,
}

/// The argument of `get_info(BMI_DROP_ADDR_QUERY)`.
#[repr(C)]
#[derive(Debug)]
pub struct method_drop_addr_query {
    /// The address asked about.
    pub addr: *mut bmi_method_addr,
    /// The answer: 1 when the method has no more use for it, 0 otherwise.
    pub response: c_int,
}

/// The host's functions. Found with `dlsym` in a host that exports these functions under their
/// usual names; any other program may pass them to `bmi_mx_set_host`.
///
/// A member that is NULL is looked up with `dlsym`, but of `reg_addr` and `forget_addr` either both or, where
/// one is given, neither. `size` is `sizeof(struct bmi_mx_host)` as the caller compiled it, so that later
/// versions can append members.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bmi_mx_host {
    /// `sizeof(struct bmi_mx_host)`.
    pub size: usize,
    /// Makes a peer that connected to us known: returns the name the host gives it, or 0 when it
    /// has no memory. Called from inside `testunexpected`, `testcontext`, `testsome` and `test`
    /// only, at most once per address, with none of the library's locks held.
    pub reg_addr: Option<unsafe extern "C" fn(addr: *mut bmi_method_addr) -> BMI_addr_t>,
    /// The peer with that name died; the host may ask `BMI_DROP_ADDR_QUERY` about it. Returns 0.
    pub forget_addr: Option<unsafe extern "C" fn(addr: BMI_addr_t) -> c_int>,
    /// Takes one line of the log, without a newline. `level` is 1 error, 2 warning, 3 information,
    /// 4 debug, 5 trace. Called from any thread that calls this library, and from its own, with none
    /// of its locks held. The thread goes on when it returns.
    pub log: Option<unsafe extern "C" fn(level: c_int, line: *const c_char)>,
}

/// The argument of `get_info(BMI_MX_GET_CREDITS)`: the method's current figures, and its counters
/// since `initialize`. A credit is 512 bytes for messages without a receive; a message's
/// bookkeeping takes 320 bytes.
///
/// `total` = `free` + `lent` + `drawn` + `copies` + `tombstones`. Later versions append members.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct bmi_mx_credits {
    /// In: `sizeof(struct bmi_mx_credits)`. Out: how many bytes have been written.
    pub size: usize,
    /// Credits there are: `MX_UNEXPECTED_BYTES`.
    pub total: u64,
    /// Free credits.
    pub free: u64,
    /// Credits lent to peers.
    pub lent: u64,
    /// Credits held by messages that were fetched, or are being fetched.
    pub drawn: u64,
    /// Credits held by copies of our own sends.
    pub copies: u64,
    /// Credits held by messages of peers that are gone.
    pub tombstones: u64,
    /// Connected peers.
    pub peers: u64,
    /// Peers that want more than they have and wait for it.
    pub waiting_peers: u64,
    /// Peers that have been asked for credits and have not answered.
    pub asked_peers: u64,
    /// Messages that came.
    pub messages: u64,
    /// Breaches of the rules about credits; each has ended a connection.
    pub violations: u64,
    /// Times that a message could not be fetched for want of credits.
    pub draws_refused: u64,
    /// Times that peers said they wanted more.
    pub wants: u64,
    /// Credits lent to them since they connected.
    pub granted: u64,
    /// Credits that peers were asked for.
    pub revoked: u64,
    /// Credits that they gave back.
    pub returned: u64,
    /// Credits that were taken back without asking.
    pub narrowed: u64,
    /// Times that what was used before was made to count less.
    pub epochs: u64,
    /// Times that sends to a peer had to wait for credits.
    pub credit_stalls: u64,
    /// Peers to which sends wait for credits now.
    pub peers_without_credits: u64,
    /// Operations that have been posted and not reported.
    pub operations: u64,
    /// Unexpected messages that `testunexpected` can have.
    pub ready: u64,
    /// Unexpected messages that are being fetched.
    pub coming: u64,
    /// Peers with unexpected messages that wait until there is room to fetch them.
    pub held: u64,
    /// Bytes of unexpected messages that are here or being fetched.
    pub unexpected_bytes: u64,
    /// Bytes of messages that came before their receives.
    pub early_bytes: u64,
    /// Bytes that are lent to peers or taken by messages, bookkeeping included.
    pub used_bytes: u64,
    /// The most that can be (`MX_UNEXPECTED_BYTES`), but for two messages of each peer.
    pub limit_bytes: u64,
}

/// The argument of `get_info(BMI_MX_GET_PEER_CREDITS)`: the credits between one peer and us. Of a peer
/// that is not connected everything is 0 but what waits for it. Later versions append members.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bmi_mx_peer_credits {
    /// In: `sizeof(struct bmi_mx_peer_credits)`. Out: how many bytes have been written.
    pub size: usize,
    /// In: the peer, by any of its addresses.
    pub addr: *mut bmi_method_addr,
    /// `BMI_MX_PEER_INIT`, `_WAIT` or `_READY`.
    pub state: c_int,
    /// Credits lent to it, wherever they are.
    pub credit_limit: u32,
    /// Credits of the limit that the peer can use now, as far as is known here.
    pub free: u32,
    /// Credits that messages of the peer use which have not been taken.
    pub waiting: u32,
    /// Credits of messages that have been taken, of which the peer has not been told yet.
    pub owed: u32,
    /// The credits it requests besides.
    pub wanted: u32,
    /// 1 when it has been asked for credits and has not answered.
    pub asked: u32,
    /// Credits that it lends us and that are free.
    pub send_free: u32,
    /// Operations that wait for the connection, and sends that wait for the link or for credits.
    pub send_waiting: u32,
    /// 1 when such a send waits for credits.
    pub send_stalled: u32,
}

const _: () = {
    layout!(bmi_method_addr: 40 align 8,
        method_type at 0, ref_count at 4, method_data at 8, parent at 16, primary at 24,
        secondary at 32);
    layout!(bmi_method_unexpected_info: 40 align 8,
        error_code at 0, addr at 8, buffer at 16, size at 24, tag at 32);
    layout!(method_drop_addr_query: 16 align 8, addr at 0, response at 8);
    // No member has padding behind it, so that any number of whole ones can be written.
    layout!(bmi_mx_credits: 232 align 8, total at 8, limit_bytes at 224);
    layout!(bmi_mx_peer_credits: 56 align 8, addr at 8, state at 16, send_stalled at 52);
    layout!(bmi_mx_host: 32 align 8, reg_addr at 8, forget_addr at 16, log at 24);
};
