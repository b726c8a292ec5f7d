//! The description of a provider.
//!
//! ```text
//!   Shape --> info.rs:      contents of fi_getinfo
//!         --> posting.rs:   limits that are enforced
//!         --> progress.rs:  how messages move
//! ```
//!
//! Owns: the description, and presets shaped after real providers.
//! Out of scope: faults, which may happen to every shape.

use std::net::Ipv4Addr;

use libc::c_int;
use libfabric_sys::abi::*;

use crate::faults::Death;

/// Ways to wait for a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// By a descriptor.
    Fd,
    /// Opening a queue with a wait object gives `-FI_ENOSYS`: `shm`.
    Refused,
    /// Opening succeeds, `FI_GETWAIT` returns `-FI_ENOSYS`: `ofi_rxd`.
    NoDescriptor,
    /// By a descriptor, available once an endpoint is bound: `usnic`.
    WhenBound,
}

/// Ways to report the end of a multi-receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// A buffer is returned with the last message in it.
    WithLast,
    /// By a completion of its own.
    Separate,
    /// Either, at random.
    Either,
}

/// A provider. Tests start from a preset and change what they are about.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Exact name.
    pub provider: String,
    /// `FI_EP_RDM` or `FI_EP_DGRAM`.
    pub ep_type: u32,
    /// Protocol: `FI_PROTO_RXM`, or 0.
    pub protocol: u32,
    /// `FI_RM_ENABLED`, or `FI_RM_DISABLED`: posting beyond the depths then breaks a rule, and so
    /// does injecting, which has no completion to wait for.
    pub resource_mgmt: u32,
    /// Whether completion queues support the tagged format.
    pub tagged_entries: bool,
    /// Whether `fi_sendmsg` supports `FI_MORE`, and may wait for the next post.
    pub knows_more: bool,
    /// Capabilities.
    pub caps: u64,
    /// Mode bits: `FI_CONTEXT`, `FI_CONTEXT2`, `FI_MSG_PREFIX`, `FI_RX_CQ_DATA`.
    pub mode: u64,
    /// Bytes before each message, with `FI_MSG_PREFIX`; a multiple of 8.
    pub prefix: usize,
    /// Whether only receives need the prefix: `verbs`.
    pub prefix_of_receives: bool,
    /// Registration mode bits.
    pub mr_mode: c_int,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Address format: `FI_SOCKADDR_IN`, `FI_ADDR_CXI`, ...
    pub address_format: u32,
    /// Bytes of an address.
    pub address_len: usize,
    /// Whether `fi_getinfo` accepts an IPv4 address as node.
    pub takes_node: bool,
    /// Longest message that `fi_inject` accepts, without the prefix.
    pub inject: usize,
    /// Maximum number of segments of a message.
    pub iov_limit: usize,
    /// Maximum number of outstanding sends and reads; `-FI_EAGAIN` beyond.
    pub tx_depth: usize,
    /// Maximum number of posted receives; `-FI_EAGAIN` beyond.
    pub rx_depth: usize,
    /// Longest message, without the prefix.
    pub max_msg: usize,
    /// Messages in a multi-receive buffer begin at multiples of this.
    pub multi_recv_align: usize,
    /// Report of a used-up multi-receive buffer.
    pub multi_recv_release: Release,
    /// Way to wait for completions.
    pub wait: Wait,
    /// Guaranteed orders of sends and receives.
    pub order: u64,
    /// Supported `FI_THREAD_*`.
    pub threading: fi_threading,
    /// Supported `FI_PROGRESS_*`.
    pub progress: fi_progress,
    /// Polls that both sides must make before a pair of endpoints is connected.
    pub connect_polls: u32,
    /// Whether sends are accepted before that; otherwise `-FI_EAGAIN`.
    pub connect_queues: bool,
    /// Messages of one peer kept without a receive; further ones are not accepted.
    pub unexpected_depth: usize,
    /// Messages up to this size are copied when they arrive, and their send completes; longer ones
    /// stay in the sender's memory until they are received.
    pub eager: usize,
    /// Effect of closing an endpoint on its peers.
    pub peer_gone: Death,
    /// Effect on operations to an address without an endpoint.
    pub no_peer: Death,
    /// Whether closing an endpoint queues an `FI_ECANCELED` for everything outstanding.
    pub close_flush: bool,
    /// Whether completions of receives from one peer come in the order of sending. Otherwise
    /// messages longer than `eager` may come after later ones; the manual promises the order of
    /// matching only, not of completions.
    pub receives_in_order: bool,
    /// Entries of a completion queue without a requested size.
    pub cq_size: usize,
    /// Whether a queue with more entries than its size fails; otherwise it grows.
    pub cq_overruns: bool,
    /// Maximum size of a completion queue. `ofi_rxm` wants 128 entries for each of
    /// `FI_UNIVERSE_SIZE` peers.
    pub cq_limit: usize,
    /// Whether a closed registration goes into a cache and stays valid there, unless
    /// `FI_MR_CACHE_MAX_COUNT` is 0: `verbs`, `efa`.
    pub mr_cache: bool,
    /// Whether reads are made by the peer's process: `efa` on adapters without them.
    pub emulates_reads: bool,
    /// Whether a rejected read ends the connection of the two endpoints: everything in flight is
    /// lost.
    pub refusal_disconnects: bool,
    /// Suffix of a domain's name, behind the name of its device.
    pub domain_suffix: &'static str,
    /// Addresses of the devices; empty for one device at any address.
    pub devices: Vec<Ipv4Addr>,
}

impl Default for Shape {
    fn default() -> Self {
        Self::tcp()
    }
}

const MESSAGES: u64 = FI_MSG | FI_SEND | FI_RECV | FI_MULTI_RECV | FI_SOURCE;
const MEMORY: u64 = FI_RMA | FI_READ | FI_REMOTE_READ;
const REACH: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;

impl Shape {
    /// Returns the `tcp` of 2.x, with RDM endpoints of its own.
    pub fn tcp() -> Self {
        Self {
            provider: "tcp".into(),
            ep_type: FI_EP_RDM,
            protocol: FI_PROTO_UNSPEC,
            resource_mgmt: FI_RM_ENABLED,
            tagged_entries: true,
            knows_more: true,
            caps: MESSAGES | MEMORY | REACH,
            mode: 0,
            prefix: 0,
            prefix_of_receives: false,
            mr_mode: 0,
            key_bytes: 8,
            address_format: FI_SOCKADDR_IN,
            address_len: size_of::<libc::sockaddr_in>(),
            takes_node: true,
            inject: 128,
            iov_limit: 4,
            tx_depth: 256,
            rx_depth: 256,
            max_msg: usize::MAX,
            multi_recv_align: 1,
            multi_recv_release: Release::Either,
            wait: Wait::Fd,
            order: FI_ORDER_SAS,
            threading: FI_THREAD_SAFE,
            progress: FI_PROGRESS_AUTO,
            connect_polls: 3,
            connect_queues: false,
            unexpected_depth: 64,
            eager: 0,
            peer_gone: Death::Again,
            no_peer: Death::Again,
            close_flush: true,
            receives_in_order: true,
            cq_size: 1024,
            cq_overruns: false,
            cq_limit: usize::MAX,
            mr_cache: false,
            emulates_reads: false,
            refusal_disconnects: false,
            domain_suffix: "",
            devices: Vec::new(),
        }
    }

    /// Returns `tcp;ofi_rxm`, of 1.17 and later.
    pub fn tcp_rxm() -> Self {
        Self {
            provider: "tcp;ofi_rxm".into(),
            protocol: FI_PROTO_RXM,
            inject: 64,
            tx_depth: 2048,
            rx_depth: 2048,
            progress: FI_PROGRESS_MANUAL,
            unexpected_depth: usize::MAX,
            eager: 64 * 1024,
            receives_in_order: false,
            ..Self::tcp()
        }
    }

    /// Returns `verbs;ofi_rxm`: addresses of sockets, real registrations by virtual address, local
    /// ones as well.
    pub fn verbs_rxm() -> Self {
        Self {
            provider: "verbs;ofi_rxm".into(),
            mr_mode: FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
            key_bytes: 4,
            max_msg: 1 << 30,
            eager: 16 * 1024,
            peer_gone: Death::Fail(FI_EIO),
            no_peer: Death::Fail(FI_ECONNREFUSED),
            refusal_disconnects: true,
            ..Self::tcp_rxm()
        }
    }

    /// Returns `verbs_rxm` at an InfiniBand address, which `verbs` also offers for each device.
    pub fn verbs_rxm_ib() -> Self {
        Self {
            address_format: FI_SOCKADDR_IB,
            address_len: 48,
            takes_node: false,
            ..Self::verbs_rxm()
        }
    }

    /// Returns Slingshot: registrations belong to endpoints and are addressed by offset.
    pub fn cxi() -> Self {
        Self {
            provider: "cxi".into(),
            mr_mode: FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
            address_format: FI_ADDR_CXI,
            address_len: 8,
            takes_node: false,
            inject: 192,
            iov_limit: 1,
            tx_depth: 256,
            rx_depth: 256,
            max_msg: 1 << 32,
            progress: FI_PROGRESS_MANUAL,
            connect_polls: 0,
            unexpected_depth: usize::MAX,
            eager: 2048,
            multi_recv_release: Release::WithLast,
            peer_gone: Death::Fail(FI_EIO),
            no_peer: Death::Fail(FI_EIO),
            ..Self::tcp()
        }
    }

    /// Returns Omni-Path by `psm3`: 32-byte addresses, contexts required, no descriptor to wait on.
    pub fn psm3() -> Self {
        Self {
            provider: "psm3".into(),
            mode: FI_CONTEXT,
            mr_mode: FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
            address_format: FI_ADDR_PSMX3,
            address_len: 32,
            takes_node: false,
            inject: 64,
            iov_limit: 1,
            max_msg: 4_294_963_199,
            progress: FI_PROGRESS_MANUAL,
            wait: Wait::Refused,
            connect_polls: 0,
            unexpected_depth: usize::MAX,
            eager: 8192,
            peer_gone: Death::Vanish,
            no_peer: Death::Vanish,
            ..Self::tcp()
        }
    }

    /// Returns EFA: 32-byte addresses, everything registered, no descriptor.
    pub fn efa() -> Self {
        Self {
            provider: "efa".into(),
            mr_mode: FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
            address_format: FI_ADDR_EFA,
            address_len: 32,
            inject: 32,
            tx_depth: 512,
            rx_depth: 512,
            wait: Wait::Refused,
            eager: 4096,
            receives_in_order: false,
            peer_gone: Death::Fail(FI_EHOSTUNREACH),
            ..Self::psm3()
        }
        .with_mode(0, 0)
    }

    /// Returns everything unusual at once: prefixes, contexts, local registrations, keys that the
    /// user chooses, 56-byte addresses, small limits.
    pub fn odd() -> Self {
        Self {
            provider: "opx".into(),
            mode: FI_CONTEXT2 | FI_MSG_PREFIX | FI_RX_CQ_DATA,
            prefix: 40,
            mr_mode: FI_MR_LOCAL | FI_MR_ALLOCATED,
            key_bytes: 4,
            address_format: FI_ADDR_OPX,
            address_len: 56,
            inject: 24,
            tx_depth: 16,
            rx_depth: 16,
            max_msg: 1 << 20,
            multi_recv_align: 64,
            multi_recv_release: Release::Separate,
            wait: Wait::NoDescriptor,
            threading: FI_THREAD_DOMAIN,
            eager: 256,
            receives_in_order: false,
            close_flush: false,
            ..Self::psm3()
        }
    }

    /// Returns the datagrams of `udp`: everything is injected, nothing registered.
    pub fn udp() -> Self {
        Self {
            provider: "udp".into(),
            ep_type: FI_EP_DGRAM,
            caps: FI_MSG | FI_SEND | FI_RECV | FI_SOURCE | FI_LOCAL_COMM | FI_REMOTE_COMM,
            inject: 1472,
            tx_depth: 1024,
            rx_depth: 1024,
            max_msg: 1472,
            order: 0,
            connect_polls: 0,
            connect_queues: true,
            eager: usize::MAX,
            peer_gone: Death::Swallow,
            no_peer: Death::Swallow,
            ..Self::tcp()
        }
    }

    /// Returns the datagrams of `usnic`: addresses of sockets, a prefix, everything registered,
    /// queues without resource management.
    pub fn usnic() -> Self {
        Self {
            provider: "usnic".into(),
            resource_mgmt: FI_RM_DISABLED,
            tagged_entries: false,
            mode: FI_MSG_PREFIX,
            prefix: 64,
            mr_mode: FI_MR_LOCAL | FI_MR_ALLOCATED,
            key_bytes: 4,
            inject: 150,
            iov_limit: 1,
            tx_depth: 32,
            rx_depth: 32,
            // Includes the prefix.
            max_msg: 8972 + 64,
            progress: FI_PROGRESS_MANUAL,
            wait: Wait::WhenBound,
            cq_overruns: true,
            ..Self::udp()
        }
    }

    /// Returns the datagrams of `verbs`: the routing header before received data, addresses of its
    /// own.
    pub fn verbs_ud() -> Self {
        Self {
            provider: "verbs".into(),
            mode: FI_MSG_PREFIX,
            prefix: 40,
            prefix_of_receives: true,
            mr_mode: FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
            key_bytes: 4,
            address_format: FI_ADDR_IB_UD,
            address_len: 32,
            inject: 64,
            tx_depth: 384,
            rx_depth: 384,
            max_msg: 4096,
            domain_suffix: "-dgram",
            ..Self::udp()
        }
    }

    /// Returns the offers of `verbs` on the same devices at IP addresses: endpoints with
    /// connections, which are not opened.
    pub fn verbs_msg() -> Self {
        Self {
            provider: "verbs".into(),
            ep_type: FI_EP_MSG,
            protocol: FI_PROTO_RDMA_CM_IB_RC,
            ..Self::verbs_rxm()
        }
    }

    /// Changes the mode, and the length of a prefix.
    pub fn with_mode(mut self, mode: u64, prefix: usize) -> Self {
        self.mode = mode;
        self.prefix = prefix;
        self
    }

    /// Returns the length of the prefix of a send.
    pub(crate) fn send_prefix(&self) -> usize {
        if self.prefix_of_receives {
            0
        } else {
            self.prefix
        }
    }

    /// Returns the bytes of a context that the provider writes to; 0 if it needs none.
    pub(crate) fn context_bytes(&self) -> usize {
        if self.mode & FI_CONTEXT2 != 0 {
            size_of::<fi_context2>()
        } else if self.mode & FI_CONTEXT != 0 {
            size_of::<fi_context>()
        } else {
            0
        }
    }
}
