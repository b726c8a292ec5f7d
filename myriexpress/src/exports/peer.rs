//! Connections, and the peers' addresses.
//!
//! Out of scope: messages.

use super::post::posted;
use crate::abi::{mx_endpoint_addr_t, mx_endpoint_t, mx_request_t, mx_return_t};
use crate::boundary::{export, timeout};
use crate::process;
use libc::c_void;
use mx_boundary::{optional, required, write_if};
use mx_proto::NicId;
use std::ptr::with_exposed_provenance_mut;

export! {
    /// Connects to an endpoint, waits at most `timeout` milliseconds for its answer, and stores its address in `*addr`.
    /// Every connect to one peer gives the same address.
    pub unsafe extern "C" fn mx_connect(
        endpoint: mx_endpoint_t,
        nic_id: u64,
        endpoint_id: u32,
        key: u32,
        timeout: u32,
        addr: *mut mx_endpoint_addr_t,
    ) -> mx_return_t, of endpoint {
        let addr = required("addr", addr)?;
        let timeout = self::timeout(timeout);
        let found = process::connect(endpoint.into(), NicId(nic_id), endpoint_id, key, timeout)?;
        // SAFETY: a writable output of C; checked above.
        unsafe { addr.write(found) };
        Ok(())
    }

    /// Posts a connect without waiting. The request completes with the peer's address in `status.source`. `request` as
    /// for `mx_isend`.
    pub unsafe extern "C" fn mx_iconnect(
        ep: mx_endpoint_t,
        nic_id: u64,
        eid: u32,
        key: u32,
        match_info: u64,
        context: *mut c_void,
        request: *mut mx_request_t,
    ) -> mx_return_t, of ep {
        let (to, context) = ((NicId(nic_id), eid), context.expose_provenance());
        let post = |ep, forget| process::iconnect(ep, to, key, match_info, context, forget);
        // SAFETY: null, or a writable output of C.
        unsafe { posted(ep, request, post) }
    }

    /// Disconnects a peer: its operations complete with an error, its unexpected messages are dropped, and the address
    /// becomes invalid. A later connect begins a new session.
    pub unsafe extern "C" fn mx_disconnect(
        ep: mx_endpoint_t,
        addr: mx_endpoint_addr_t,
    ) -> mx_return_t, of ep {
        process::disconnect(ep.into(), addr)
    }

    /// Stores the endpoint's own address in `*endpoint_addr`; messages to it come back to the endpoint.
    pub unsafe extern "C" fn mx_get_endpoint_addr(
        endpoint: mx_endpoint_t,
        endpoint_addr: *mut mx_endpoint_addr_t,
    ) -> mx_return_t, of endpoint {
        let addr = required("endpoint_addr", endpoint_addr)?;
        let own = process::own_address(endpoint.into())?;
        // SAFETY: a writable output of C; checked above.
        unsafe { addr.write(own) };
        Ok(())
    }

    /// Stores the NIC id and endpoint number of an address; outputs that are NULL are skipped.
    pub unsafe extern "C" fn mx_decompose_endpoint_addr(
        endpoint_addr: mx_endpoint_addr_t,
        nic_id: *mut u64,
        endpoint_id: *mut u32,
    ) -> mx_return_t, of endpoint_addr {
        let nic_id = optional("nic_id", nic_id)?;
        let endpoint_id = optional("endpoint_id", endpoint_id)?;
        let (nic, endpoint, _) = process::decompose(endpoint_addr)?;
        // SAFETY: writable outputs of C; checked above.
        unsafe {
            write_if(nic_id, nic.0);
            write_if(endpoint_id, endpoint);
        }
        Ok(())
    }

    /// Stores the NIC id, endpoint number and session of an address; outputs that are NULL are skipped. The session
    /// differs for each opening of the peer's endpoint.
    pub unsafe extern "C" fn mx_decompose_endpoint_addr2(
        endpoint_addr: mx_endpoint_addr_t,
        nic_id: *mut u64,
        endpoint_id: *mut u32,
        session_id: *mut u32,
    ) -> mx_return_t, of endpoint_addr {
        let nic_id = optional("nic_id", nic_id)?;
        let endpoint_id = optional("endpoint_id", endpoint_id)?;
        let session_id = optional("session_id", session_id)?;
        let (nic, endpoint, session) = process::decompose(endpoint_addr)?;
        // SAFETY: writable outputs of C; checked above.
        unsafe {
            write_if(nic_id, nic.0);
            write_if(endpoint_id, endpoint);
            write_if(session_id, session);
        }
        Ok(())
    }

    /// Attaches a pointer to the peer of an address, until the peer is disconnected. All copies of the address share
    /// it.
    pub unsafe extern "C" fn mx_set_endpoint_addr_context(
        endpoint_addr: mx_endpoint_addr_t,
        context: *mut c_void,
    ) -> mx_return_t, of endpoint_addr {
        process::set_context(endpoint_addr, context.expose_provenance())
    }

    /// Stores the pointer attached to the peer of an address in `*context`; NULL if there is none.
    pub unsafe extern "C" fn mx_get_endpoint_addr_context(
        endpoint_addr: mx_endpoint_addr_t,
        context: *mut *mut c_void,
    ) -> mx_return_t, of endpoint_addr {
        let context = required("context", context)?;
        let found = process::context(endpoint_addr)?;
        // SAFETY: a writable output of C; checked above.
        unsafe { context.write(with_exposed_provenance_mut(found)) };
        Ok(())
    }
}
