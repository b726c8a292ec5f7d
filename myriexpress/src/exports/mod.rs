//! The exported functions: those of `myriexpress.h`, `mx_extensions.h` and `mx_io.h`.
//!
//! ```text
//!   lifecycle   init finalize set_error_handler strerror strstatus  MX_ERRORS_ARE_FATAL _RETURN
//!   endpoint    open close wakeup disable/reenable_progression progress register_unexp_handler
//!   post        isend issend irecv cancel forget set_request_timeout
//!   complete    test wait test_any wait_any ipeek peek iprobe probe ibuffered buffered context
//!   peer        connect iconnect disconnect, addresses and their contexts
//!   names       hostname, board_number, nic_id, get_info
//!   kept        obsolete functions that old programs link; mx_io
//! ```
//!
//! Every function may be called from any thread at any time, and is documented in its header. On failure no output is
//! written.
//!
//! Owns: C's argument lists and the codes for wrong arguments.
//! Out of scope: matching, the network.

// C's names. The headers say what a C caller must keep to.
#![allow(non_snake_case, clippy::missing_safety_doc)]

pub mod complete;
pub mod endpoint;
pub mod kept;
pub mod lifecycle;
pub mod names;
pub mod peer;
pub mod post;
