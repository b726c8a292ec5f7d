//! Names and addresses.
//!
//! Owns: nothing.
//! Out of scope: the syntax (`peer_name`), peers.

use crate::export;
use bmi_method::abi::types::bmi_method_addr;
use bmi_method::{host, instance, logging};
use libc::{c_char, c_int};
use mx_boundary::{required, string};

export! {
    /// Makes an address object for a peer, from `mx://host:board:endpoint`, `mx://host:endpoint` or a list of addresses
    /// that contains one of these. May be called before `BMI_mx_initialize` (a server does, with its own name). Does
    /// not wait for the network. Each call returns a new object, to be dropped with `BMI_mx_set_info(BMI_DROP_ADDR)`.
    ///
    /// Returns NULL for other methods' addresses, and for malformed ones, which are logged.
    pub unsafe extern "C" fn BMI_mx_method_addr_lookup(
        id_string: *const c_char,
    ) -> *mut bmi_method_addr {
        logging::start();
        // SAFETY: null or a C string, which outlives the call.
        let name = unsafe { string("id_string", id_string, host::facts().max_addr_len) }?;
        let found = instance::lookup(name);
        Ok(found.map_or(std::ptr::null_mut(), |addr| addr.as_ptr()))
    }

    /// Returns the name of a peer that sent an unexpected message, valid until the address is dropped; "(unknown)" for
    /// NULL and any other pointer that is no address.
    pub unsafe extern "C" fn BMI_mx_rev_lookup_unexpected(
        addr: *mut bmi_method_addr,
    ) -> *const c_char {
        Ok(instance::rev_lookup(addr))
    }

    /// Tests whether a peer's host is in a range. With a `netmask` of 0 or more, `wildcard` is `mx://` and an address
    /// whose first `netmask` bits count; 32 also stands for all bits of an IPv6 address that has non-zero bits after
    /// the first 32. With -1, or if `wildcard` is no address and the mask is 0 or 32, it is text with `*` in places,
    /// for the peer's address or host name. A peer on this machine has all its addresses.
    ///
    /// Returns 1 if so, 0 if not; -BMI_EINVAL for NULL or an invalid range.
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
