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

use libc::c_int;
use libfabric_sys::abi::*;

use crate::faults::Call;
use crate::hints::{Hints, Source, granted, source};
use crate::shape::Shape;
use crate::slots::Tenant;

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
        let asked = unsafe { Hints::read(hints) };
        let Some(mr_mode) = asked.suits(&shape) else {
            continue;
        };
        let Some(source) = source(&shape, node.as_deref(), service.as_deref(), flags, &asked)
        else {
            continue;
        };
        let info = offer(&shape, &asked, mr_mode, source);
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

fn offer(shape: &Shape, asked: &Hints, mr_mode: c_int, source: Source) -> *mut fi_info {
    let raw = empty();
    // SAFETY: just made, and nobody else has it.
    let info = unsafe { &mut *raw };
    let caps = granted(asked, shape);
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
    tx.size = if asked.tx_size == 0 {
        shape.tx_depth
    } else {
        asked.tx_size
    };
    tx.iov_limit = shape.iov_limit;
    tx.rma_iov_limit = 1;
    // SAFETY: as above.
    let rx = unsafe { &mut *info.rx_attr };
    rx.caps = caps & !FI_SEND;
    rx.mode = shape.mode;
    rx.msg_order = shape.order;
    rx.size = if asked.rx_size == 0 {
        shape.rx_depth
    } else {
        asked.rx_size
    };
    rx.iov_limit = shape.iov_limit;
    // SAFETY: as above.
    let ep = unsafe { &mut *info.ep_attr };
    ep.r#type = shape.ep_type;
    ep.protocol = shape.protocol;
    ep.protocol_version = 1;
    ep.max_msg_size = shape.max_msg;
    ep.msg_prefix_size = shape.prefix;
    ep.tx_ctx_cnt = 1;
    ep.rx_ctx_cnt = 1;
    // SAFETY: as above.
    let domain = unsafe { &mut *info.domain_attr };
    domain.name = string(&shape.domain);
    domain.threading = if asked.threading == 0 {
        shape.threading
    } else {
        asked.threading
    };
    domain.control_progress = shape.progress;
    domain.data_progress = if asked.progress == 0 {
        shape.progress
    } else {
        asked.progress
    };
    domain.resource_mgmt = shape.resource_mgmt;
    domain.av_type = if asked.av_type == 0 {
        FI_AV_TABLE
    } else {
        asked.av_type
    };
    domain.mr_mode = mr_mode;
    domain.mr_key_size = shape.key_bytes;
    domain.cq_data_size = 8;
    domain.cq_cnt = 128;
    domain.ep_cnt = 128;
    domain.tx_ctx_cnt = 128;
    domain.rx_ctx_cnt = 128;
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
pub(crate) unsafe fn text(pointer: *const c_char) -> Option<String> {
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
        hints.set_caps(FI_MSG);
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
        let datagrams = |fake: &Fake| {
            names(fake, |hints| {
                hints.set_ep_type(FI_EP_DGRAM).set_caps(FI_MSG);
            })
        };
        assert!(datagrams(&fake).is_empty());
        let both = Fake::offering(vec![Shape::tcp(), Shape::usnic()], 1);
        assert_eq!(datagrams(&both), ["usnic"]);
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
