//! Opening and closing endpoints, and calls for a whole endpoint.
//!
//! Owns: the parameters of `mx_open_endpoint`.
//! Out of scope: requests, peers.

use crate::abi::{
    MX_ANY_ENDPOINT, MX_ANY_NIC, MX_CONTEXT_ID_BITS_MAX, MX_PARAM_CONTEXT_ID,
    MX_PARAM_ERROR_HANDLER, MX_PARAM_UNEXP_QUEUE_MAX, mx_endpoint_t, mx_param_t, mx_return_t,
    mx_unexp_handler_t,
};
use crate::boundary::{coded, export};
use crate::error::{Code, Error};
use crate::process::{self, ContextIds, OpenParams, UnexpectedHandler};
use crate::{handler, library};
use libc::c_void;
use mx_boundary::{array, in_range, required};

/// Maximum number of parameters: there are three keys, and the last of each counts.
const PARAMS_MAX: u32 = 64;

export! {
    /// Opens an endpoint and stores its handle in `*endpoint`. `MX_ANY_NIC` and `MX_ANY_ENDPOINT` let the library
    /// choose the board and the number. Peers must connect with the same `endpoint_key`. `params_array` has
    /// `params_count` further settings (`MX_PARAM_*`), and may be NULL for none.
    pub unsafe extern "C" fn mx_open_endpoint(
        board_number: u32,
        endpoint_id: u32,
        endpoint_key: u32,
        params_array: *mut mx_param_t,
        params_count: u32,
        endpoint: *mut mx_endpoint_t,
    ) -> mx_return_t {
        let endpoint = required("endpoint", endpoint)?;
        let settings = library::settings()?;
        let mut params = OpenParams {
            board: (board_number != MX_ANY_NIC).then_some(board_number),
            endpoint: (endpoint_id != MX_ANY_ENDPOINT).then_some(endpoint_id),
            key: endpoint_key,
            ..OpenParams::default()
        };
        // SAFETY: null or `params_count` parameters, by the contract.
        unsafe { read_params(params_array, params_count, &mut params) }?;
        let opened = process::open(&settings, params)?;
        if let Err(ended) = library::settings() {
            // Another thread's mx_finalize has closed only the endpoints that it saw.
            let _ = process::close(opened);
            return Err(ended);
        }
        // SAFETY: a writable output of C; checked above.
        unsafe { endpoint.write(opened.into()) };
        Ok(())
    }

    /// Closes an endpoint, after waiting at most two seconds for its last messages to leave. Its requests end
    /// without a completion, their buffers are no longer accessed, and waiting threads return `MX_BAD_ENDPOINT`. Fails
    /// inside the endpoint's own unexpected handler; waits for a handler running in another thread.
    pub unsafe extern "C" fn mx_close_endpoint(endpoint: mx_endpoint_t) -> mx_return_t, of endpoint {
        process::close(endpoint.into())
    }

    /// Wakes all threads that wait on the endpoint at this moment; they return as after a time-out. Threads that begin
    /// to wait later are not affected.
    pub unsafe extern "C" fn mx_wakeup(endpoint: mx_endpoint_t) -> mx_return_t, of endpoint {
        process::wakeup(endpoint.into())
    }

    /// Suspends progress of an endpoint until `mx_reenable_progression`, also inside calls that wait: no message is
    /// received, answered or passed to the unexpected handler. Waits for a handler running in another thread. Calls do
    /// not nest.
    pub unsafe extern "C" fn mx_disable_progression(ep: mx_endpoint_t) -> mx_return_t, of ep {
        process::set_progression(ep.into(), false)
    }

    /// Resumes progress after `mx_disable_progression`, and polls once for what has arrived meanwhile. One call
    /// suffices, however often progress was disabled.
    pub unsafe extern "C" fn mx_reenable_progression(ep: mx_endpoint_t) -> mx_return_t, of ep {
        process::set_progression(ep.into(), true)
    }

    /// Polls the endpoint once without waiting: receives, sends and completes operations. Reports no completion;
    /// `mx_test` and the like do.
    pub unsafe extern "C" fn mx_progress(ep: mx_endpoint_t) -> mx_return_t, of ep {
        process::progress(ep.into())
    }

    /// Registers the handler to be called, one message at a time, for messages that no posted receive matches; NULL
    /// removes it. Waits for a call of the previous handler in another thread.
    pub unsafe extern "C" fn mx_register_unexp_handler(
        ep: mx_endpoint_t,
        handler: mx_unexp_handler_t,
        context: *mut c_void,
    ) -> mx_return_t, of ep {
        let handler = handler.map(|function| UnexpectedHandler {
            function,
            context: context.expose_provenance(),
        });
        process::register_handler(ep.into(), handler)
    }
}

/// Stores the parameters of a list.
///
/// # Safety
///
/// `list` is null or readable for `count` parameters.
unsafe fn read_params(
    list: *mut mx_param_t,
    count: u32,
    params: &mut OpenParams,
) -> Result<(), Error> {
    let bad = coded(Code::BadParamList);
    in_range("params_count", count, 0, PARAMS_MAX.into()).map_err(&bad)?;
    // SAFETY: the caller's promise.
    let list = unsafe { array("params_array", list, count as usize) }.map_err(&bad)?;
    for (at, param) in list.iter().enumerate() {
        match param.key {
            MX_PARAM_ERROR_HANDLER => {
                // SAFETY: C has stored a function or null for this key.
                params.error_handler = handler::word(unsafe { param.val.error_handler });
            }
            MX_PARAM_UNEXP_QUEUE_MAX => {
                // SAFETY: C has stored a number for this key; any number is legal.
                let bytes = unsafe { param.val.unexp_queue_max };
                params.unexpected_bytes = (bytes != 0).then_some(bytes as usize);
            }
            MX_PARAM_CONTEXT_ID => {
                // SAFETY: C has stored two bytes for this key; any are legal.
                let field = unsafe { param.val.context_id };
                params.context_ids = context_ids(field.bits, field.shift)?;
            }
            other => {
                let text = format!("parameter {at} has the unknown key {other}");
                return Err(Error::new(Code::BadParamName, text));
            }
        }
    }
    Ok(())
}

/// Checks the position of a context id; `None` for 0 bits.
fn context_ids(bits: u8, shift: u8) -> Result<Option<ContextIds>, Error> {
    let fits = bits <= MX_CONTEXT_ID_BITS_MAX && u32::from(bits) + u32::from(shift) <= u64::BITS;
    let field = match (fits, bits) {
        (true, 0) => return Ok(None),
        (true, _) => ContextIds::new(bits, shift),
        (false, _) => None,
    };
    let bad = || format!("a context id of {bits} bits at bit {shift}");
    match field {
        None => Err(Error::new(Code::BadParamVal, bad())),
        some => Ok(some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{mx_context_id, mx_param_val};

    fn read(list: &mut [mx_param_t]) -> Result<OpenParams, Code> {
        let mut params = OpenParams::default();
        // SAFETY: the list has that many entries.
        let result = unsafe { read_params(list.as_mut_ptr(), list.len() as u32, &mut params) };
        result.map(|()| params).map_err(|error| error.code())
    }

    fn context_id(bits: u8, shift: u8) -> mx_param_t {
        mx_param_t {
            key: MX_PARAM_CONTEXT_ID,
            val: mx_param_val {
                context_id: mx_context_id { bits, shift },
            },
        }
    }

    fn queue(key: u32, bytes: u32) -> mx_param_t {
        mx_param_t {
            key,
            val: mx_param_val {
                unexp_queue_max: bytes,
            },
        }
    }

    #[test]
    fn context_ids_are_checked_at_their_limits() {
        for (bits, shift) in [(1, 0), (16, 48), (16, 0), (1, 63)] {
            let params = read(&mut [context_id(bits, shift)]).unwrap();
            assert!(params.context_ids.is_some(), "{bits} at {shift}");
        }
        for (bits, shift) in [(0, 0), (0, 64)] {
            let params = read(&mut [context_id(bits, shift)]).unwrap();
            assert!(params.context_ids.is_none(), "{bits} at {shift}");
        }
        for (bits, shift) in [(17, 0), (16, 49), (1, 64), (255, 255), (0, 65)] {
            let code = read(&mut [context_id(bits, shift)]).unwrap_err();
            assert_eq!(code, Code::BadParamVal, "{bits} at {shift}");
        }
    }

    #[test]
    fn a_list_is_there_and_short_and_its_last_word_counts() {
        let mut params = OpenParams::default();
        // SAFETY: nothing is read.
        let none = unsafe { read_params(std::ptr::null_mut(), 0, &mut params) };
        assert!(none.is_ok());
        // SAFETY: as above.
        let missing = unsafe { read_params(std::ptr::null_mut(), 1, &mut params) };
        assert_eq!(missing.unwrap_err().code(), Code::BadParamList);
        let mut full = vec![queue(MX_PARAM_UNEXP_QUEUE_MAX, 5); 64];
        full[63] = queue(MX_PARAM_UNEXP_QUEUE_MAX, 7);
        assert_eq!(read(&mut full).unwrap().unexpected_bytes, Some(7));
        full.push(queue(MX_PARAM_UNEXP_QUEUE_MAX, 0));
        assert_eq!(read(&mut full).unwrap_err(), Code::BadParamList);
        assert_eq!(read(&mut full[1..]).unwrap().unexpected_bytes, None);
        for key in [3, u32::MAX] {
            let mut list = [queue(MX_PARAM_UNEXP_QUEUE_MAX, 5), queue(key, 0)];
            assert_eq!(read(&mut list).unwrap_err(), Code::BadParamName);
        }
    }
}
