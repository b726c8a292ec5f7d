//! Offers and hints: `fi_info` and its attributes.
//!
//! ```text
//!   fi_info --next--> fi_info --next--> null
//!     |-- src_addr, dest_addr   src_addrlen / dest_addrlen bytes, shaped by addr_format
//!     |-- tx_attr, rx_attr      sending and receiving: inject size, iov limits, depth
//!     |-- ep_attr               endpoint: type, protocol, largest message, prefix
//!     |-- domain_attr           threading, progress, mr_mode, counts
//!     `-- fabric_attr           provider name, versions
//! ```
//!
//! Owns: as much of these structs as is used, which all versions have had since 1.9.
//!
//! None of these is ever allocated here: hints come from `fi_dupinfo(NULL)`, offers from
//! `fi_getinfo`, both at the library's own size. So never copy one by value to hand it on.

use libc::{c_char, c_int, c_void};

use super::constants::{fi_av_type, fi_ep_type, fi_progress, fi_resource_mgmt, fi_threading};
use super::objects::{fid, fid_domain, fid_fabric, fid_nic};

c_structs! {
    /// Attributes of sending. Limits of segments follow, and a traffic class.
    [prefix] pub struct fi_tx_attr {
        /// Capabilities, of those in `fi_info.caps`.
        caps: u64,
        /// Mode bits that the provider requires.
        mode: u64,
        /// Flags of every operation that does not give its own.
        op_flags: u64,
        /// `FI_ORDER_*` the endpoint keeps.
        msg_order: u64,
        /// Order of completions; no longer in use.
        comp_order: u64,
        /// The longest message `fi_inject` takes.
        inject_size: usize,
        /// The maximum number of outstanding operations.
        size: usize,
    }

    /// Attributes of receiving. A limit of segments follows.
    [prefix] pub struct fi_rx_attr {
        /// Capabilities, of those in `fi_info.caps`.
        caps: u64,
        /// Mode bits that the provider requires.
        mode: u64,
        /// Flags of every operation that does not give its own.
        op_flags: u64,
        /// `FI_ORDER_*` the endpoint keeps.
        msg_order: u64,
        /// Order of completions; no longer in use.
        comp_order: u64,
        /// Bytes the provider holds for messages without a buffer; no longer in use.
        total_buffered_recv: usize,
        /// The maximum number of outstanding operations.
        size: usize,
    }

    /// Attributes of an endpoint. Limits of order, tags, contexts and keys follow.
    [prefix] pub struct fi_ep_attr {
        /// `FI_EP_*`.
        r#type: fi_ep_type,
        /// `FI_PROTO_*`.
        protocol: u32,
        /// The provider's version of that protocol.
        protocol_version: u32,
        /// The longest message.
        max_msg_size: usize,
        /// Bytes before each buffer that the provider wants, with `FI_MSG_PREFIX`.
        msg_prefix_size: usize,
    }

    /// Attributes of a domain. Counts and limits that are not used here follow.
    [prefix] pub struct fi_domain_attr {
        /// An open domain to look in, or null.
        domain: *mut fid_domain,
        /// Its name, usually the device; freed with the info.
        name: *mut c_char,
        /// `FI_THREAD_*`.
        threading: fi_threading,
        /// `FI_PROGRESS_*` of connections and the like.
        control_progress: fi_progress,
        /// `FI_PROGRESS_*` of messages; also named `progress` in 2.x.
        data_progress: fi_progress,
        /// `FI_RM_*`.
        resource_mgmt: fi_resource_mgmt,
        /// `FI_AV_*`.
        av_type: fi_av_type,
        /// `FI_MR_*` bits.
        mr_mode: c_int,
        /// Bytes of a remote key.
        mr_key_size: usize,
    }

    /// The provider and its version.
    [whole] pub struct fi_fabric_attr {
        /// An open fabric to look in, or null.
        fabric: *mut fid_fabric,
        /// Its name, usually the subnet; freed with the info.
        name: *mut c_char,
        /// The provider, layers joined by `;`; freed with the info, so from `malloc`.
        prov_name: *mut c_char,
        /// Version of the provider.
        prov_version: u32,
        /// Version of the interface, as asked for.
        api_version: u32,
    }

    /// An offer, or the hints that ask for some.
    [whole] pub struct fi_info {
        /// The next offer, best first, or null.
        next: *mut fi_info,
        /// `FI_MSG` and the like.
        caps: u64,
        /// Mode bits that the provider requires; in hints: what the user can give.
        mode: u64,
        /// The shape of the addresses.
        addr_format: u32,
        /// Bytes of `src_addr`.
        src_addrlen: usize,
        /// Bytes of `dest_addr`.
        dest_addrlen: usize,
        /// Where an endpoint would be, or null.
        src_addr: *mut c_void,
        /// Where the node asked for is, or null.
        dest_addr: *mut c_void,
        /// A connection request, or null.
        handle: *mut fid,
        /// Sending.
        tx_attr: *mut fi_tx_attr,
        /// Receiving.
        rx_attr: *mut fi_rx_attr,
        /// The endpoint.
        ep_attr: *mut fi_ep_attr,
        /// The domain.
        domain_attr: *mut fi_domain_attr,
        /// The fabric.
        fabric_attr: *mut fi_fabric_attr,
        /// The card, or null.
        nic: *mut fid_nic,
    }
}
