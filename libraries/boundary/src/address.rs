//! Names and addresses.
//!
//! Owns: nothing.
//! Not here: the syntax (`peer_name`), peers.

use crate::Error;
use crate::boundary::{export, required, string};
use bmi_method::abi::types::bmi_method_addr;
use bmi_method::host::Facts;
use bmi_method::{host, instance, logging};
use libc::{c_char, c_int};

export! {
    /// The name of a peer that sent an unexpected message. It stays valid until the address is
    /// dropped.
    ///
    /// Returns "(unknown)" for a pointer that is no address, also NULL.
    pub unsafe extern "C" fn BMI_mx_rev_lookup_unexpected(
        addr: *mut bmi_method_addr,
    ) -> *const c_char {
        Ok(instance::rev_lookup(addr))
    }

    /// Whether a peer's host lies in a range. With a `netmask` of 0 or more, `wildcard` is `mx://` and
    /// an address whose first `netmask` bits count; 32 also stands for all bits of an IPv6 address that has
    /// some behind these. With -1, or if it is no address and the mask is 0 or 32, it is text with `*` in places,
    /// for the peer's address or host name. A peer on this machine has all its addresses.
    ///
    /// Returns 1 when it does, 0 when not; -BMI_EINVAL for NULL or a range that makes no sense.
    pub unsafe extern "C" fn BMI_mx_query_addr_range(
        addr: *mut bmi_method_addr,
        wildcard: *const c_char,
        netmask: c_int,
    ) -> c_int {
        let addr = required("addr", addr)?;
        // SAFETY: null or a C string, which outlives the call.
        let wildcard = unsafe { string("wildcard", wildcard, host::facts().max_addr_len) }?;
        let inside = instance::query_addr_range(addr, wildcard, netmask)?;
        Ok(inside.into())
    }
}

/// The body of the hosts' `BMI_mx_method_addr_lookup`, the first call of a server.
///
/// # Safety
///
/// `id_string` is null or a C string.
pub unsafe fn lookup(
    facts: &'static Facts,
    id_string: *const c_char,
) -> Result<*mut bmi_method_addr, Box<Error>> {
    host::is(facts);
    logging::start();
    // SAFETY: the caller's promise; it outlives the call.
    let name = unsafe { string("id_string", id_string, facts.max_addr_len) }?;
    let found = instance::lookup(name);
    Ok(found.map_or(std::ptr::null_mut(), |addr| addr.as_ptr()))
}
