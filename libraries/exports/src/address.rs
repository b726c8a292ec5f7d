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
    /// The address of a peer, from `mx://host:board:endpoint`, `mx://host:endpoint` or a list of
    /// addresses that has one of these. May be called before `BMI_mx_initialize` (a server does,
    /// with its own name). Does not wait for the network. Each call gives an object of its own, to
    /// be given back with `BMI_mx_set_info(BMI_DROP_ADDR)`.
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
