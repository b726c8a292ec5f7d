//! Start, stop, `set_info`, `get_info` and contexts.
//!
//! ```text
//!   method_addr_lookup(listen)   initialize   open_context   ...   close_context   finalize
//!        server only                                              set_info(DROP_ADDR) for each
//! ```
//!
//! Owns: the info keys.

use crate::Error;
use crate::credits;
use crate::export;
use crate::sized::{copy, whole_members};
use bmi_method::abi::constants::{
    BMI_CHECK_MAXSIZE, BMI_DROP_ADDR, BMI_DROP_ADDR_QUERY, BMI_ENOSYS, BMI_GET_UNEXP_SIZE,
    BMI_MAX_CONTEXTS, BMI_MX_GET_CREDITS, BMI_MX_GET_PEER_CREDITS, BMI_TCP_GET_PORT,
};
use bmi_method::abi::types::{
    bmi_context_id, bmi_method_addr, bmi_mx_host, method_drop_addr_query,
};
use bmi_method::config::Config;
use bmi_method::{buffer, host, instance, logging};
use libc::{c_int, c_void};
use mx_boundary::{in_range, optional, required};
use std::mem::offset_of;
use std::ptr::NonNull;

/// Largest message in bytes, and the answer to `BMI_CHECK_MAXSIZE`: sizes are 31 bits on the host's side.
pub const MAX_MESSAGE: c_int = c_int::MAX;

/// Answer to `BMI_GET_UNEXP_SIZE`, in bytes. Larger unexpected messages are carried, too, but the file system derives
/// its small I/O from this number and its encoding overflows above 16424.
pub const UNEXPECTED_SIZE: c_int = 16 * 1024;

export! {
    /// Stops the method: operations end without a completion, and peers are told. Addresses stay valid for
    /// `BMI_mx_set_info(BMI_DROP_ADDR)`. Afterwards `BMI_mx_initialize` may be called again.
    ///
    /// Returns 0, or -BMI_ENODEV if the method was not initialized.
    pub unsafe extern "C" fn BMI_mx_finalize() -> c_int {
        instance::finalize()?;
        buffer::set_cache_limit(0);
        Ok(0)
    }

    /// Sets an option of the method. `BMI_DROP_ADDR` with a `struct bmi_method_addr *` drops the address, also after
    /// `BMI_mx_finalize`. Every other key is accepted and ignored.
    ///
    /// Returns 0, or -BMI_EINVAL for `BMI_DROP_ADDR` with NULL.
    pub unsafe extern "C" fn BMI_mx_set_info(option: c_int, inout_parameter: *mut c_void) -> c_int {
        logging::refresh();
        if option == BMI_DROP_ADDR {
            let addr = required("inout_parameter", inout_parameter.cast::<bmi_method_addr>())?;
            instance::drop_addr(addr);
        }
        Ok(0)
    }

    /// Queries the method.
    ///
    /// `BMI_CHECK_MAXSIZE` (`int *`): the largest message, 2147483647. `BMI_GET_UNEXP_SIZE` (`int *`): 16384; larger
    /// unexpected messages are carried, too. `BMI_DROP_ADDR_QUERY` (`struct method_drop_addr_query *`): `response`
    /// becomes 1 if the peer is lost and has no messages left, else 0. `BMI_TCP_GET_PORT` (`int *`; the stand-alone BMI
    /// only): the number of the open endpoint.
    ///
    /// Two keys are this method's own, and require an initialized method. `BMI_MX_GET_CREDITS` (`struct bmi_mx_credits
    /// *`): credits, queues and memory. `BMI_MX_GET_PEER_CREDITS` (`struct bmi_mx_peer_credits *`): those of the peer
    /// `addr`. The caller sets `size` to the size of its struct; the method writes as many whole members as fit, and
    /// sets `size` to their bytes.
    ///
    /// Returns 0; -BMI_EINVAL for NULL, a `size` that is too small, or an invalid address; -BMI_ENODEV for this
    /// method's own keys if it is not initialized; -BMI_ENOSYS for any other key.
    pub unsafe extern "C" fn BMI_mx_get_info(option: c_int, inout_parameter: *mut c_void) -> c_int {
        logging::refresh();
        match option {
            BMI_CHECK_MAXSIZE | BMI_GET_UNEXP_SIZE => {
                let out = required("inout_parameter", inout_parameter.cast::<c_int>())?;
                let answer = match option {
                    BMI_CHECK_MAXSIZE => MAX_MESSAGE,
                    _ => UNEXPECTED_SIZE,
                };
                // SAFETY: for these keys C passes an int to write to.
                unsafe { out.write(answer) };
            }
            BMI_DROP_ADDR_QUERY => {
                let query = inout_parameter.cast::<method_drop_addr_query>();
                let query = required("inout_parameter", query)?.as_ptr();
                // SAFETY: for this key C passes such a struct, with `addr` filled in.
                let addr = required("addr", unsafe { (*query).addr })?;
                let response = instance::drop_addr_query(addr);
                // SAFETY: as above.
                unsafe { (*query).response = response.into() };
            }
            BMI_MX_GET_CREDITS => {
                let out = required("inout_parameter", inout_parameter.cast())?;
                // SAFETY: for this key C passes such a struct, with `size` filled in.
                unsafe { credits::all(out) }?;
            }
            BMI_MX_GET_PEER_CREDITS => {
                let out = required("inout_parameter", inout_parameter.cast())?;
                // SAFETY: for this key C passes such a struct, with `size` and `addr` filled in.
                unsafe { credits::of_peer(out) }?;
            }
            // Only one of the hosts knows this key.
            BMI_TCP_GET_PORT if host::facts().listens_anywhere => {
                let out = required("inout_parameter", inout_parameter.cast::<c_int>())?;
                let endpoint = instance::endpoint()?;
                // SAFETY: for this key C passes an int to write to.
                unsafe { out.write(endpoint.0 as c_int) };
            }
            other => return Err(Error::new(BMI_ENOSYS, format!("unknown info key {other}"))),
        }
        Ok(0)
    }

    /// Opens a context, 0 to 15, in which operations complete. Opening it twice does no harm.
    ///
    /// Returns 0, or -BMI_EINVAL for another number.
    pub unsafe extern "C" fn BMI_mx_open_context(context_id: bmi_context_id) -> c_int {
        logging::refresh();
        instance::open_context(context(context_id)?)?;
        Ok(0)
    }

    /// Closes a context. Untested completions are dropped.
    pub unsafe extern "C" fn BMI_mx_close_context(context_id: bmi_context_id) {
        instance::close_context(context(context_id)?);
        Ok(())
    }

    /// Sets the host's functions, for a host that does not export them under their usual names, or for a program
    /// without a host. The struct is copied. A NULL member is looked up with `dlsym`, except that `reg_addr` and
    /// `forget_addr` are looked up only if both are NULL. If they are not found, the library numbers peers itself, and
    /// logs to stderr. NULL removes earlier functions. Best called before any other function.
    ///
    /// Returns 0, or -BMI_EINVAL if `size` is smaller than two pointers.
    pub unsafe extern "C" fn bmi_mx_set_host(host: *const bmi_mx_host) -> c_int {
        let given = match optional("host", host.cast_mut())? {
            None => None,
            // SAFETY: such a struct, of which at least `size` is valid.
            Some(host) => Some(unsafe { copy_host(host) }?),
        };
        host::set_host(given);
        logging::start();
        Ok(0)
    }
}

/// Implements the hosts' `BMI_mx_initialize`.
pub fn initialize(
    listen_addr: *mut bmi_method_addr,
    method_id: c_int,
    flags: c_int,
    options: Option<&str>,
) -> Result<c_int, Box<Error>> {
    logging::start();
    let listen = optional("listen_addr", listen_addr)?;
    instance::initialize(listen, method_id, flags, options)?;
    if !host::is_there() {
        log::info!(
            "bmi_method_addr_reg_callback is not visible: this library numbers peers itself. A \
             host that has one exports it (-rdynamic if it is a program) or calls bmi_mx_set_host"
        );
    }
    buffer::set_cache_limit(Config::load(options).0.buffer_cache);
    Ok(0)
}

/// Copies the members that the caller's version of the struct has.
///
/// # Safety
///
/// `host` points to as many bytes as its `size` says.
unsafe fn copy_host(host: NonNull<bmi_mx_host>) -> Result<bmi_mx_host, Box<Error>> {
    // SAFETY: `size` is in every version of the struct.
    let size = unsafe { (*host.as_ptr()).size };
    let least = offset_of!(bmi_mx_host, forget_addr);
    let len = whole_members::<bmi_mx_host>(size, least, size_of::<usize>())?;
    let mut given = bmi_mx_host {
        size: 0,
        reg_addr: None,
        forget_addr: None,
        log: None,
    };
    // SAFETY: both have these bytes, whole members: for the functions, any pointer that C stores is a value.
    unsafe { copy(host, NonNull::from(&mut given), len) };
    Ok(given)
}

/// Checks a context's number.
#[inline]
pub(crate) fn context(id: bmi_context_id) -> Result<i64, Box<Error>> {
    let last = i64::from(BMI_MAX_CONTEXTS) - 1;
    Ok(in_range("context_id", id, 0, last)?)
}
