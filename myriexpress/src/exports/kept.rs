//! Functions that exist because old programs link them: three calls that are rejected, and those of MPI.
//!
//! ```text
//!   mx_iput, mx_iget               MX_FAILURE: an address from a peer is never used
//!   mx_register_unexp_callback     MX_FAILURE: replaced by mx_register_unexp_handler
//!   mx_open_board, mx__get_mapper_state, mx__regcache_clean     answer as without a mapper
//! ```
//!
//! Out of scope: requests.

use crate::abi::{
    mx_endpoint_addr_t, mx_endpoint_t, mx_endpt_handle_t, mx_mapper_state_t,
    mx_matching_callback_t, mx_request_t, mx_return_t,
};
use crate::boundary::export;
use crate::error::{Code, Error};
use crate::{library, names};
use libc::{c_int, c_void, size_t};
use mx_boundary::required;

/// Error text of the one-sided calls.
const ONE_SIDED: &str = "not supported: a peer's memory is never touched at an address it was \
                         told; send a message";

export! {
    /// Rejects the call with `MX_FAILURE`: one-sided writes to a peer's memory are not supported.
    pub unsafe extern "C" fn mx_iput(
        endpoint: mx_endpoint_t,
        _local_addr: *mut c_void,
        _length: u32,
        _dest_endpoint: mx_endpoint_addr_t,
        _remote_addr: u64,
        _context: *mut c_void,
        _request: *mut mx_request_t,
    ) -> mx_return_t, of endpoint {
        Err(Error::new(Code::Failure, ONE_SIDED))
    }

    /// Rejects the call with `MX_FAILURE`: one-sided reads of a peer's memory are not supported.
    pub unsafe extern "C" fn mx_iget(
        endpoint: mx_endpoint_t,
        _local_addr: *mut c_void,
        _length: u32,
        _dest_endpoint: mx_endpoint_addr_t,
        _remote_addr: u64,
        _context: *mut c_void,
        _request: *mut mx_request_t,
    ) -> mx_return_t, of endpoint {
        Err(Error::new(Code::Failure, ONE_SIDED))
    }

    /// Rejects the call with `MX_FAILURE`; `mx_register_unexp_handler` replaces it.
    pub unsafe extern "C" fn mx_register_unexp_callback(
        ep: mx_endpoint_t,
        _cb: mx_matching_callback_t,
        _ctxt: *mut c_void,
    ) -> mx_return_t, of ep {
        let text = "not supported: use mx_register_unexp_handler";
        Err(Error::new(Code::Failure, text))
    }

    /// Checks that this machine has board `i`, and stores its number in `*handle`. Opens nothing, so there is nothing
    /// to close.
    pub unsafe extern "C" fn mx_open_board(
        i: c_int,
        handle: *mut mx_endpt_handle_t,
    ) -> mx_return_t {
        let handle = required("handle", handle)?;
        board(i)?;
        // SAFETY: a writable output of C; checked above.
        unsafe { handle.write(i) };
        Ok(())
    }

    /// Stores a mapper state in which only the board number is set, because there is no mapper. `handle` as from
    /// `mx_open_board`.
    pub unsafe extern "C" fn mx__get_mapper_state(
        handle: mx_endpt_handle_t,
        state: *mut mx_mapper_state_t,
    ) -> mx_return_t {
        let state = required("state", state)?;
        let board_number = board(handle)?;
        let answer = mx_mapper_state_t {
            board_number,
            ..mx_mapper_state_t::default()
        };
        // SAFETY: a writable output of C; checked above.
        unsafe { state.write(answer) };
        Ok(())
    }
}

/// Checks that this machine has a board of that number.
fn board(number: c_int) -> Result<u32, Error> {
    library::settings()?;
    let unknown = |_| {
        Error::new(
            Code::BoardUnknown,
            format!("this host has no board {number}"),
        )
    };
    let number = u32::try_from(number).map_err(unknown)?;
    names::of_board(number)?;
    Ok(number)
}

/// Does nothing and returns 0: the library caches no registrations of the program's memory.
// SAFETY: the name is the library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx__regcache_clean(_ptr: *mut c_void, _len: size_t) -> c_int {
    0
}
