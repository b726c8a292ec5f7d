//! Offers and hints: `fi_info` and its attributes.
//!
//! ```text
//!   fi_info --next--> fi_info --next--> null
//!     |-- src_addr, dest_addr   src_addrlen / dest_addrlen bytes, in the format addr_format
//!     |-- tx_attr, rx_attr      sending and receiving: inject size, iov limits, depth
//!     |-- ep_attr               endpoint: type, protocol, largest message, prefix
//!     |-- domain_attr           threading, progress, mr_mode, counts
//!     `-- fabric_attr           provider name, versions
//! ```
//!
//! Owns: the members in use of these structs, which all versions since 1.9 have.
//!
//! None of these structs is ever allocated here: hints come from `fi_dupinfo(NULL)`, offers from `fi_getinfo`, both at the
//! library's size. So never pass on a copy by value.

use libc::{c_char, c_int, c_void};

use super::constants::{fi_av_type, fi_ep_type, fi_progress, fi_resource_mgmt, fi_threading};
use super::objects::{fid, fid_domain, fid_fabric, fid_nic};

c_structs! {
    /// Attributes of sends. Segment limits and a traffic class follow.
    [prefix] pub struct fi_tx_attr {
        /// Capabilities, a subset of `fi_info.caps`.
        caps: u64,
        /// Mode bits that the provider requires.
        mode: u64,
        /// Default flags of operations.
        op_flags: u64,
        /// Ordering guarantees of the endpoint, `FI_ORDER_*`.
        msg_order: u64,
        /// Order of completions; no longer in use.
        comp_order: u64,
        /// Longest message that `fi_inject` takes, in bytes.
        inject_size: usize,
        /// Maximum number of outstanding operations.
        size: usize,
    }

    /// Attributes of receives. A segment limit follows.
    [prefix] pub struct fi_rx_attr {
        /// Capabilities, a subset of `fi_info.caps`.
        caps: u64,
        /// Mode bits that the provider requires.
        mode: u64,
        /// Default flags of operations.
        op_flags: u64,
        /// Ordering guarantees of the endpoint, `FI_ORDER_*`.
        msg_order: u64,
        /// Order of completions; no longer in use.
        comp_order: u64,
        /// Bytes that the provider buffers for messages without a receive; no longer in use.
        total_buffered_recv: usize,
        /// Maximum number of outstanding operations.
        size: usize,
    }

    /// Attributes of an endpoint. Limits of ordering, tags, contexts and keys follow.
    [prefix] pub struct fi_ep_attr {
        /// Endpoint type, `FI_EP_*`.
        r#type: fi_ep_type,
        /// Wire protocol, `FI_PROTO_*`.
        protocol: u32,
        /// Provider's version of that protocol.
        protocol_version: u32,
        /// Longest message, in bytes.
        max_msg_size: usize,
        /// Bytes that the provider requires before each buffer, with `FI_MSG_PREFIX`.
        msg_prefix_size: usize,
    }

    /// Attributes of a domain. Unused counts and limits follow.
    [prefix] pub struct fi_domain_attr {
        /// Open domain to query, or null.
        domain: *mut fid_domain,
        /// Name of the domain, usually the device; freed with the info.
        name: *mut c_char,
        /// Threading model, `FI_THREAD_*`.
        threading: fi_threading,
        /// Progress model of control operations, `FI_PROGRESS_*`.
        control_progress: fi_progress,
        /// Progress model of messages, `FI_PROGRESS_*`; also named `progress` in 2.x.
        data_progress: fi_progress,
        /// Resource management, `FI_RM_*`.
        resource_mgmt: fi_resource_mgmt,
        /// Type of address vectors, `FI_AV_*`.
        av_type: fi_av_type,
        /// Registration modes, `FI_MR_*` bits.
        mr_mode: c_int,
        /// Size of a remote key, in bytes.
        mr_key_size: usize,
    }

    /// Provider and its version.
    [whole] pub struct fi_fabric_attr {
        /// Open fabric to query, or null.
        fabric: *mut fid_fabric,
        /// Name of the fabric, usually the subnet; freed with the info.
        name: *mut c_char,
        /// Name of the provider, layers joined by `;`; freed with the info, so allocated by `malloc`.
        prov_name: *mut c_char,
        /// Version of the provider.
        prov_version: u32,
        /// Version of the interface, as requested.
        api_version: u32,
    }

    /// Offer of a provider, or hints for a query.
    [whole] pub struct fi_info {
        /// Next offer, best first, or null.
        next: *mut fi_info,
        /// Capabilities, such as `FI_MSG`.
        caps: u64,
        /// Mode bits that the provider requires; in hints: those that the user supports.
        mode: u64,
        /// Format of the addresses.
        addr_format: u32,
        /// Length of `src_addr`, in bytes.
        src_addrlen: usize,
        /// Length of `dest_addr`, in bytes.
        dest_addrlen: usize,
        /// Address of a local endpoint, or null.
        src_addr: *mut c_void,
        /// Address of the requested node, or null.
        dest_addr: *mut c_void,
        /// Connection request, or null.
        handle: *mut fid,
        /// Attributes of sends.
        tx_attr: *mut fi_tx_attr,
        /// Attributes of receives.
        rx_attr: *mut fi_rx_attr,
        /// Attributes of the endpoint.
        ep_attr: *mut fi_ep_attr,
        /// Attributes of the domain.
        domain_attr: *mut fi_domain_attr,
        /// Attributes of the fabric.
        fabric_attr: *mut fi_fabric_attr,
        /// Description of the card, or null.
        nic: *mut fid_nic,
    }
}
