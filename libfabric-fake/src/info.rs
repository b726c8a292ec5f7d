//! Offers: `fi_getinfo`, `fi_dupinfo`, `fi_freeinfo`.
//!
//! ```text
//!   hints --- suits(shape)? ---> fi_info for each shape that does, in the order of the fabric
//!                                all of it from malloc, freed by freeinfo
//! ```
//!
//! Owns: what an offer says, and the memory of infos.
//! Knows nothing of: objects.

use std::ffi::{CStr, CString, c_char, c_void};
use std::net::Ipv4Addr;

use libc::c_int;
use libfabric_sys::abi::*;

use crate::faults::Call;
use crate::shape::Shape;
use crate::slots::Tenant;

/// An address to be bound to, if one was asked for.
type Source = Option<Vec<u8>>;

/// # Safety
///
/// `fi_getinfo`'s contract.
pub(crate) unsafe fn getinfo(
    tenant: &Tenant,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    out: *mut *mut fi_info,
) -> c_int {
    let Some(home) = tenant.home.upgrade() else {
        return -FI_ENODATA;
    };
    let (refused, shapes) = home.with(|state| {
        let seen = state
            .machines
            .get(tenant.machine)
            .and_then(|machine| machine.providers.clone());
        let visible = |shape: &Shape| seen.as_ref().is_none_or(|s| s.contains(&shape.provider));
        let shapes: Vec<_> = state
            .offers
            .iter()
            .filter(|shape| visible(shape))
            .cloned()
            .collect();
        (state.refused(Call::GetInfo), shapes)
    });
    if let Some(error) = refused {
        return error as c_int;
    }
    // SAFETY: C strings or null, by the contract.
    let node = unsafe { text(node) };
    // SAFETY: as above.
    let service = unsafe { text(service) };
    let mut first: *mut fi_info = std::ptr::null_mut();
    let mut last = &raw mut first;
    for shape in shapes {
        // SAFETY: an info or null, by the contract.
        let wish = unsafe { Wish::read(hints) };
        let Some(mr_mode) = wish.suits(&shape) else {
            continue;
        };
        let Some(source) = source(&shape, node.as_deref(), service.as_deref(), flags, &wish) else {
            continue;
        };
        let info = offer(&shape, &wish, mr_mode, source);
        // SAFETY: `last` is `first` or the `next` of the info made before.
        unsafe { last.write(info) };
        // SAFETY: just made.
        last = unsafe { &raw mut (*info).next };
    }
    if first.is_null() {
        return -FI_ENODATA;
    }
    // SAFETY: an output, by the contract.
    unsafe { out.write(first) };
    0
}

/// What hints ask for; zeros where they say nothing.
#[derive(Default)]
struct Wish {
    given: bool,
    caps: u64,
    mode: u64,
    addr_format: u32,
    source: Source,
    provider: Option<String>,
    domain: Option<String>,
    ep_type: u32,
    protocol: u32,
    max_msg: usize,
    threading: u32,
    progress: u32,
    av_type: u32,
    mr_mode: c_int,
    order: u64,
    inject: usize,
    tx_size: usize,
    rx_size: usize,
    iov_limit: usize,
}

impl Wish {
    /// # Safety
    ///
    /// An info or null.
    unsafe fn read(hints: *const fi_info) -> Self {
        // SAFETY: the caller's word.
        let Some(hints) = (unsafe { hints.as_ref() }) else {
            return Self::default();
        };
        let mut wish = Self {
            given: true,
            caps: hints.caps,
            mode: hints.mode,
            addr_format: hints.addr_format,
            ..Self::default()
        };
        if !hints.src_addr.is_null() {
            // SAFETY: an info's address has the length it says.
            let bytes = unsafe {
                std::slice::from_raw_parts(hints.src_addr.cast::<u8>(), hints.src_addrlen)
            };
            wish.source = Some(bytes.to_vec());
        }
        // SAFETY: an info's attributes are null or valid; so below.
        if let Some(tx) = unsafe { hints.tx_attr.as_ref() } {
            (wish.order, wish.inject) = (tx.msg_order, tx.inject_size);
            (wish.tx_size, wish.iov_limit) = (tx.size, tx.iov_limit);
        }
        // SAFETY: as above.
        if let Some(rx) = unsafe { hints.rx_attr.as_ref() } {
            wish.order |= rx.msg_order;
            wish.rx_size = rx.size;
        }
        // SAFETY: as above.
        if let Some(ep) = unsafe { hints.ep_attr.as_ref() } {
            (wish.ep_type, wish.protocol, wish.max_msg) = (ep.r#type, ep.protocol, ep.max_msg_size);
        }
        // SAFETY: as above.
        if let Some(domain) = unsafe { hints.domain_attr.as_ref() } {
            (wish.threading, wish.progress) = (domain.threading, domain.data_progress);
            (wish.av_type, wish.mr_mode) = (domain.av_type, domain.mr_mode);
            // SAFETY: a C string or null.
            wish.domain = unsafe { text(domain.name) };
        }
        // SAFETY: as above.
        if let Some(fabric) = unsafe { hints.fabric_attr.as_ref() } {
            // SAFETY: a C string or null.
            wish.provider = unsafe { text(fabric.prov_name) };
        }
        wish
    }

    fn remote(&self) -> bool {
        !self.given || self.caps == 0 || self.caps & FI_RMA != 0
    }

    /// The `mr_mode` of an offer, or none when the shape cannot do what is wanted, or wants what
    /// cannot be done.
    fn suits(&self, shape: &Shape) -> Option<c_int> {
        let named = self
            .provider
            .as_ref()
            .is_none_or(|name| *name == shape.provider)
            && self
                .domain
                .as_ref()
                .is_none_or(|name| *name == shape.domain);
        let format = self.addr_format == FI_FORMAT_UNSPEC
            || self.addr_format == shape.address_format
            || (self.addr_format == FI_SOCKADDR && shape.address_format == FI_SOCKADDR_IN);
        let strict = matches!(self.threading, FI_THREAD_SAFE | FI_THREAD_FID);
        let kind = matches!(self.ep_type, FI_EP_UNSPEC | FI_EP_RDM)
            && (self.protocol == FI_PROTO_UNSPEC || self.protocol == shape.protocol)
            && matches!(self.av_type, FI_AV_UNSPEC | FI_AV_TABLE | FI_AV_MAP)
            && !(strict && shape.threading != FI_THREAD_SAFE)
            && !(self.progress == FI_PROGRESS_AUTO && shape.progress == FI_PROGRESS_MANUAL);
        let able = self.caps & !shape.caps == 0
            && self.order & !shape.order == 0
            && self.max_msg <= shape.max_msg
            && self.inject <= shape.inject
            && self.tx_size <= shape.tx_depth
            && self.rx_size <= shape.rx_depth
            && self.iov_limit <= shape.iov_limit;
        // Without remote access and without local registration nothing is ever registered.
        let needed = if self.remote() || shape.mr_mode & FI_MR_LOCAL != 0 {
            shape.mr_mode
        } else {
            0
        };
        let willing = !self.given || (shape.mode & !self.mode == 0 && needed & !self.mr_mode == 0);
        (named && format && kind && able && willing).then_some(needed)
    }
}

/// Where an endpoint would be; `None` when the node means nothing to the provider.
fn source(
    shape: &Shape,
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
    wish: &Wish,
) -> Option<Source> {
    if let Some(address) = &wish.source {
        return (address.len() == shape.address_len).then(|| Some(address.clone()));
    }
    if node.is_some() && !shape.takes_node {
        return None;
    }
    if shape.address_format != FI_SOCKADDR_IN {
        return Some(None);
    }
    let (ip, port) = if flags & FI_SOURCE != 0 {
        let ip = node.map_or(Ok(Ipv4Addr::LOCALHOST), str::parse).ok()?;
        (ip, service.map_or(Ok(0), str::parse).ok()?)
    } else {
        (Ipv4Addr::LOCALHOST, 0)
    };
    Some(Some(sockaddr_in(ip, port)))
}

/// The bytes of a `sockaddr_in`.
pub(crate) fn sockaddr_in(ip: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<libc::sockaddr_in>()];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&ip.octets());
    bytes
}

/// What the caller gets for what it asked: with modifiers as asked, or all of them.
fn granted(wish: &Wish, shape: &Shape) -> u64 {
    if wish.caps == 0 {
        return shape.caps;
    }
    let mut caps = wish.caps | (shape.caps & (FI_LOCAL_COMM | FI_REMOTE_COMM));
    if caps & (FI_MSG | FI_TAGGED) != 0 && caps & (FI_SEND | FI_RECV) == 0 {
        caps |= FI_SEND | FI_RECV;
    }
    let remote = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    if caps & FI_RMA != 0 && caps & remote == 0 {
        caps |= remote;
    }
    caps
}

fn offer(shape: &Shape, wish: &Wish, mr_mode: c_int, source: Source) -> *mut fi_info {
    let raw = empty();
    // SAFETY: just made, and nobody else has it.
    let info = unsafe { &mut *raw };
    let caps = granted(wish, shape);
    info.caps = caps;
    info.mode = shape.mode;
    info.addr_format = shape.address_format;
    if let Some(source) = source {
        info.src_addrlen = source.len();
        info.src_addr = copy(&source);
    }
    // SAFETY: `empty` gave every info all its attributes; so below.
    let tx = unsafe { &mut *info.tx_attr };
    tx.caps = caps & !(FI_RECV | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE);
    tx.mode = shape.mode;
    tx.msg_order = shape.order;
    tx.inject_size = shape.inject;
    tx.size = if wish.tx_size == 0 {
        shape.tx_depth
    } else {
        wish.tx_size
    };
    tx.iov_limit = shape.iov_limit;
    tx.rma_iov_limit = shape.rma_iov_limit;
    // SAFETY: as above.
    let rx = unsafe { &mut *info.rx_attr };
    rx.caps = caps & !FI_SEND;
    rx.mode = shape.mode;
    rx.msg_order = shape.order;
    rx.size = if wish.rx_size == 0 {
        shape.rx_depth
    } else {
        wish.rx_size
    };
    rx.iov_limit = shape.iov_limit;
    // SAFETY: as above.
    let ep = unsafe { &mut *info.ep_attr };
    ep.r#type = FI_EP_RDM;
    ep.protocol = shape.protocol;
    ep.protocol_version = 1;
    ep.max_msg_size = shape.max_msg;
    ep.msg_prefix_size = shape.prefix;
    ep.mem_tag_format = shape.tag_format;
    ep.tx_ctx_cnt = 1;
    ep.rx_ctx_cnt = 1;
    // SAFETY: as above.
    let domain = unsafe { &mut *info.domain_attr };
    domain.name = string(&shape.domain);
    domain.threading = if wish.threading == 0 {
        shape.threading
    } else {
        wish.threading
    };
    domain.control_progress = shape.progress;
    domain.data_progress = if wish.progress == 0 {
        shape.progress
    } else {
        wish.progress
    };
    domain.resource_mgmt = FI_RM_ENABLED;
    domain.av_type = if wish.av_type == 0 {
        FI_AV_TABLE
    } else {
        wish.av_type
    };
    domain.mr_mode = mr_mode;
    domain.mr_key_size = shape.key_bytes;
    domain.cq_data_size = 8;
    domain.cq_cnt = shape.ep_cnt;
    domain.ep_cnt = shape.ep_cnt;
    domain.tx_ctx_cnt = shape.ep_cnt;
    domain.rx_ctx_cnt = shape.ep_cnt;
    domain.max_ep_tx_ctx = 1;
    domain.max_ep_rx_ctx = 1;
    domain.mr_iov_limit = 1;
    domain.mr_cnt = 1 << 16;
    // SAFETY: as above.
    let fabric = unsafe { &mut *info.fabric_attr };
    fabric.name = string("fake");
    fabric.prov_name = string(&shape.provider);
    fabric.prov_version = fi_version(117, 0);
    fabric.api_version = fi_version(1, 17);
    raw
}

/// # Safety
///
/// A C string or null.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller's word.
    Some(
        unsafe { CStr::from_ptr(pointer) }
            .to_string_lossy()
            .into_owned(),
    )
}

/// Zeroed memory for a `T`, which must be a struct of numbers and pointers.
fn zeroed<T>() -> *mut T {
    // SAFETY: no precondition; the size is not zero.
    let memory = unsafe { libc::calloc(1, size_of::<T>()) };
    assert!(!memory.is_null(), "no memory");
    memory.cast()
}

fn copy(bytes: &[u8]) -> *mut c_void {
    // SAFETY: no precondition; one more keeps the size from being zero.
    let memory = unsafe { libc::malloc(bytes.len() + 1) };
    assert!(!memory.is_null(), "no memory");
    // SAFETY: new memory of that size.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.cast(), bytes.len()) };
    memory
}

fn string(text: &str) -> *mut c_char {
    let text = CString::new(text).unwrap_or_default();
    copy(text.as_bytes_with_nul()).cast()
}

fn empty() -> *mut fi_info {
    let raw = zeroed::<fi_info>();
    // SAFETY: zeroed memory is an info of zeros and nulls.
    let info = unsafe { &mut *raw };
    info.tx_attr = zeroed();
    info.rx_attr = zeroed();
    info.ep_attr = zeroed();
    info.domain_attr = zeroed();
    info.fabric_attr = zeroed();
    raw
}

/// Copies one attribute struct over another.
///
/// # Safety
///
/// `from` is null or valid, `to` is valid.
unsafe fn attribute<T: Copy>(to: *mut T, from: *const T) {
    // SAFETY: the caller's word.
    if let Some(value) = unsafe { from.as_ref() } {
        // SAFETY: the caller's word.
        unsafe { to.write(*value) };
    }
}

pub(crate) unsafe extern "C" fn dupinfo(from: *const fi_info) -> *mut fi_info {
    let raw = empty();
    // SAFETY: an info or null, by the call's contract.
    let Some(from) = (unsafe { from.as_ref() }) else {
        return raw;
    };
    // SAFETY: just made.
    let to = unsafe { &mut *raw };
    (to.caps, to.mode, to.addr_format) = (from.caps, from.mode, from.addr_format);
    to.handle = from.handle;
    (to.src_addrlen, to.dest_addrlen) = (from.src_addrlen, from.dest_addrlen);
    for (to, from, len) in [
        (&mut to.src_addr, from.src_addr, from.src_addrlen),
        (&mut to.dest_addr, from.dest_addr, from.dest_addrlen),
    ] {
        if !from.is_null() {
            // SAFETY: an info's address has the length it says.
            *to = copy(unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) });
        }
    }
    // SAFETY: from an info, to one of `empty`; so below.
    unsafe { attribute(to.tx_attr, from.tx_attr) };
    // SAFETY: as above.
    unsafe { attribute(to.rx_attr, from.rx_attr) };
    // SAFETY: as above.
    unsafe { attribute(to.ep_attr, from.ep_attr) };
    // SAFETY: as above.
    unsafe { attribute(to.domain_attr, from.domain_attr) };
    // SAFETY: as above.
    unsafe { attribute(to.fabric_attr, from.fabric_attr) };
    // SAFETY: an attribute of `empty`.
    let ep = unsafe { &mut *to.ep_attr };
    (ep.auth_key, ep.auth_key_size) = (std::ptr::null_mut(), 0);
    // SAFETY: an attribute of `empty`.
    let domain = unsafe { &mut *to.domain_attr };
    (domain.auth_key, domain.auth_key_size) = (std::ptr::null_mut(), 0);
    // SAFETY: a C string or null, by now in both.
    domain.name = unsafe { same(domain.name) };
    // SAFETY: an attribute of `empty`.
    let fabric = unsafe { &mut *to.fabric_attr };
    // SAFETY: as for the domain.
    fabric.name = unsafe { same(fabric.name) };
    // SAFETY: as for the domain.
    fabric.prov_name = unsafe { same(fabric.prov_name) };
    raw
}

/// A copy of a string.
///
/// # Safety
///
/// A C string or null.
unsafe fn same(text: *const c_char) -> *mut c_char {
    if text.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's word.
    copy(unsafe { CStr::from_ptr(text) }.to_bytes_with_nul()).cast()
}

pub(crate) unsafe extern "C" fn freeinfo(mut info: *mut fi_info) {
    while !info.is_null() {
        // SAFETY: an info that nobody else has, by the call's contract.
        let this = unsafe { *info };
        // SAFETY: an info's attributes are null or valid.
        if let Some(domain) = unsafe { this.domain_attr.as_ref() } {
            free(domain.name);
            free(domain.auth_key);
        }
        // SAFETY: as above.
        if let Some(fabric) = unsafe { this.fabric_attr.as_ref() } {
            free(fabric.name);
            free(fabric.prov_name);
        }
        // SAFETY: as above.
        if let Some(ep) = unsafe { this.ep_attr.as_ref() } {
            free(ep.auth_key);
        }
        free(this.src_addr);
        free(this.dest_addr);
        free(this.tx_attr);
        free(this.rx_attr);
        free(this.ep_attr);
        free(this.domain_attr);
        free(this.fabric_attr);
        free(info);
        info = this.next;
    }
}

/// Frees what came from `malloc`, as everything in an info does.
fn free<T>(pointer: *mut T) {
    // SAFETY: by `fi_freeinfo`'s contract every pointer of an info is null or from `malloc`.
    unsafe { libc::free(pointer.cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fake;

    fn names(fake: &Fake, change: impl FnOnce(&mut libfabric_sys::Hints)) -> Vec<String> {
        let library = fake.library();
        let mut hints = library.hints().expect("memory");
        hints.set_caps(FI_MSG | FI_TAGGED);
        hints.set_mode(u64::MAX).set_mr_mode(c_int::MAX);
        change(&mut hints);
        let found = library.query(None, None, 0, Some(&hints));
        found.map_or_else(
            |error| {
                assert_eq!(error, FI_ENODATA);
                Vec::new()
            },
            |list| {
                list.iter()
                    .map(|info| info.provider().into_owned())
                    .collect()
            },
        )
    }

    fn everything() -> Fake {
        Fake::offering(
            vec![Shape::cxi(), Shape::odd(), Shape::tcp(), Shape::tcp_rxm()],
            1,
        )
    }

    #[test]
    fn offers_come_in_the_order_of_the_fabric() {
        assert_eq!(
            names(&everything(), |_| ()),
            ["cxi", "opx", "tcp", "tcp;ofi_rxm"]
        );
    }

    #[test]
    fn a_provider_is_found_by_its_exact_name_only() {
        let fake = everything();
        let ask = |name: &str| {
            names(&fake, |hints| {
                hints.set_provider(name).expect("a name");
            })
        };
        assert_eq!(ask("tcp"), ["tcp"]);
        assert_eq!(ask("tcp;ofi_rxm"), ["tcp;ofi_rxm"]);
        assert!(ask("tc").is_empty() && ask("ofi_rxm").is_empty());
    }

    #[test]
    fn who_cannot_give_what_a_provider_wants_does_not_see_it() {
        let fake = everything();
        let without_mode = names(&fake, |hints| {
            hints.set_mode(FI_CONTEXT2 | FI_MSG_PREFIX);
        });
        assert_eq!(without_mode, ["cxi", "tcp", "tcp;ofi_rxm"]);
        let without_registration = names(&fake, |hints| {
            hints.set_caps(FI_MSG | FI_RMA).set_mr_mode(FI_MR_LOCAL);
        });
        assert_eq!(without_registration, ["tcp", "tcp;ofi_rxm"]);
        let too_much = names(&fake, |hints| {
            hints.set_caps(FI_MSG | FI_ATOMIC);
        });
        assert!(too_much.is_empty());
        let datagrams = names(&fake, |hints| {
            hints.set_ep_type(FI_EP_DGRAM);
        });
        assert!(datagrams.is_empty());
    }

    #[test]
    fn a_machine_sees_its_own_providers() {
        let fake = everything();
        let machine = fake.machine(&["tcp"]);
        let list = machine
            .library()
            .query(None, None, 0, None)
            .expect("an offer");
        let names: Vec<_> = list
            .iter()
            .map(|info| info.provider().into_owned())
            .collect();
        assert_eq!(names, ["tcp"]);
    }

    #[test]
    fn a_kept_offer_has_strings_and_an_address_of_its_own() {
        let fake = Fake::new(Shape::tcp(), 1);
        let library = fake.library();
        let list = library
            .query(Some(c"127.0.0.1"), Some(c"7"), FI_SOURCE, None)
            .expect("tcp");
        let info = list.first().expect("an offer");
        let kept = list.keep(info).expect("memory");
        drop(list);
        let info = kept.first().expect("a copy");
        assert_eq!(info.provider(), "tcp");
        // SAFETY: a live info with an address of 16 bytes, of which these are the port's.
        let port = unsafe { (*info.as_ptr()).src_addr.cast::<[u8; 4]>().read() };
        assert_eq!(port[2..], [0, 7]);
    }

    #[test]
    fn an_opaque_address_has_no_node() {
        let fake = Fake::new(Shape::cxi(), 1);
        let found = fake
            .library()
            .query(Some(c"127.0.0.1"), None, FI_SOURCE, None);
        assert_eq!(found.err(), Some(FI_ENODATA));
    }
}
