//! Offers: `fi_getinfo`, `fi_dupinfo`, `fi_freeinfo`.
//!
//! ```text
//!   hints --- suits(shape)? ---> fi_info for each matching shape, in the order of the fabric
//!                                all of it from malloc, freed by freeinfo
//! ```
//!
//! Owns: the contents and memory of infos.
//! Out of scope: objects.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null_mut;

use libc::c_int;
use libfabric_sys::abi::*;

use crate::faults::Call;
use crate::hints::{granted, sources, suits};
use crate::shape::Shape;
use crate::slots::Tenant;

/// An info with all its attributes, in one allocation.
#[repr(C)]
pub(crate) struct Whole {
    pub(crate) info: fi_info,
    pub(crate) tx: fi_tx_attr,
    pub(crate) rx: fi_rx_attr,
    pub(crate) ep: fi_ep_attr,
    pub(crate) domain: fi_domain_attr,
    pub(crate) fabric: fi_fabric_attr,
}

impl Whole {
    /// Reads an info; null is read as zeros.
    ///
    /// # Safety
    ///
    /// An info or null.
    pub(crate) unsafe fn read(info: *const fi_info) -> Self {
        // SAFETY: the caller guarantees it.
        let info = unsafe { read(info) };
        Self {
            info,
            // SAFETY: an info's attributes are null or valid; so below.
            tx: unsafe { read(info.tx_attr) },
            // SAFETY: as above.
            rx: unsafe { read(info.rx_attr) },
            // SAFETY: as above.
            ep: unsafe { read(info.ep_attr) },
            // SAFETY: as above.
            domain: unsafe { read(info.domain_attr) },
            // SAFETY: as above.
            fabric: unsafe { read(info.fabric_attr) },
        }
    }

    /// Copies the info to memory of its own, for `fi_freeinfo`.
    fn leak(self) -> *mut fi_info {
        let whole = allocate(size_of::<Self>()).cast::<Self>();
        // SAFETY: new memory of that size, in which all of this lies; so below.
        unsafe { whole.write(self) };
        // SAFETY: as above.
        let info = unsafe { &raw mut (*whole).info };
        // SAFETY: as above.
        unsafe {
            (*info).tx_attr = &raw mut (*whole).tx;
            (*info).rx_attr = &raw mut (*whole).rx;
            (*info).ep_attr = &raw mut (*whole).ep;
            (*info).domain_attr = &raw mut (*whole).domain;
            (*info).fabric_attr = &raw mut (*whole).fabric;
            (*info).next = null_mut();
        }
        info
    }
}

/// Reads a struct of libfabric's; null is read as zeros.
///
/// # Safety
///
/// Valid or null, and `T` consists of numbers and pointers.
unsafe fn read<T: Copy>(from: *const T) -> T {
    // SAFETY: the caller guarantees it.
    unsafe { from.as_ref().copied().unwrap_or_else(|| std::mem::zeroed()) }
}

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
    let (refused, shapes, removed) = home.with(|state| {
        let machine = &state.machines[tenant.machine];
        let seen = &machine.providers;
        let visible = |shape: &Shape| seen.as_ref().is_none_or(|s| s.contains(&shape.provider));
        let shapes = state.offers.iter().filter(|shape| visible(shape));
        (
            state.refused(Call::GetInfo),
            shapes.cloned().collect::<Vec<_>>(),
            machine.removed.clone(),
        )
    });
    if let Some(error) = refused {
        return error as c_int;
    }
    // SAFETY: C strings or null, by the contract.
    let node = unsafe { text(node) };
    // SAFETY: as above.
    let service = unsafe { text(service) };
    // SAFETY: an info or null, by the contract.
    let mut asked = unsafe { Whole::read(hints) };
    if hints.is_null() {
        (asked.info.mode, asked.domain.mr_mode) = (u64::MAX, c_int::MAX);
    }
    // SAFETY: a C string or null, by the contract.
    let named = unsafe { text(asked.fabric.prov_name) };
    let mut first: *mut fi_info = null_mut();
    for shape in shapes.into_iter().rev() {
        if named.as_ref().is_some_and(|name| *name != shape.provider) {
            continue;
        }
        let Some(mr_mode) = suits(&asked, &shape) else {
            continue;
        };
        let sources = sources(&shape, node.as_deref(), service.as_deref(), flags);
        for (device, source) in sources.into_iter().rev() {
            if removed.contains(&device) {
                continue;
            }
            let info = offer(&shape, &asked, mr_mode, (device, source));
            // SAFETY: just made.
            unsafe { (*info).next = first };
            first = info;
        }
    }
    if first.is_null() {
        return -FI_ENODATA;
    }
    // SAFETY: an output, by the contract.
    unsafe { out.write(first) };
    0
}

/// Beginning of a device's name; its number follows.
pub(crate) const DEVICE: &str = "fake";

fn offer(
    shape: &Shape,
    asked: &Whole,
    mr_mode: c_int,
    (device, source): (usize, Option<Vec<u8>>),
) -> *mut fi_info {
    // SAFETY: null gives zeros.
    let mut offer = unsafe { Whole::read(std::ptr::null()) };
    let Whole {
        info,
        tx,
        rx,
        ep,
        domain,
        fabric,
    } = &mut offer;
    info.caps = granted(asked.info.caps, shape);
    info.addr_format = shape.address_format;
    if let Some(source) = source {
        info.src_addrlen = source.len();
        info.src_addr = copy(&source);
    }
    (info.mode, tx.mode, rx.mode) = (shape.mode, shape.mode, shape.mode);
    if shape.prefix_of_receives {
        tx.mode &= !FI_MSG_PREFIX;
    }
    tx.caps = info.caps & !(FI_RECV | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE);
    rx.caps = info.caps & !FI_SEND;
    (tx.msg_order, rx.msg_order) = (shape.order, shape.order);
    (tx.size, rx.size) = (shape.tx_depth, shape.rx_depth);
    tx.inject_size = shape.inject;
    ep.r#type = shape.ep_type;
    ep.protocol = shape.protocol;
    ep.max_msg_size = shape.max_msg;
    ep.msg_prefix_size = shape.prefix;
    let or = |asked: u32, own: u32| if asked == 0 { own } else { asked };
    domain.name = string(&format!("{DEVICE}{device}{}", shape.domain_suffix));
    domain.threading = or(asked.domain.threading, shape.threading);
    domain.control_progress = shape.progress;
    domain.data_progress = or(asked.domain.data_progress, shape.progress);
    domain.resource_mgmt = shape.resource_mgmt;
    domain.av_type = FI_AV_TABLE;
    domain.mr_mode = mr_mode;
    domain.mr_key_size = shape.key_bytes;
    fabric.name = string("fake");
    fabric.prov_name = string(&shape.provider);
    fabric.prov_version = fi_version(117, 0);
    fabric.api_version = fi_version(1, 17);
    offer.leak()
}

/// # Safety
///
/// A C string or null.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    // SAFETY: the caller guarantees it.
    let text = || unsafe { CStr::from_ptr(pointer) };
    (!pointer.is_null()).then(|| text().to_string_lossy().into_owned())
}

fn allocate(len: usize) -> *mut c_void {
    // SAFETY: no precondition; one more keeps the size from being zero.
    let memory = unsafe { libc::malloc(len + 1) };
    assert!(!memory.is_null(), "no memory");
    memory
}

fn copy(bytes: &[u8]) -> *mut c_void {
    let memory = allocate(bytes.len());
    // SAFETY: new memory of that size.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.cast(), bytes.len()) };
    memory
}

fn string(text: &str) -> *mut c_char {
    copy(CString::new(text).unwrap_or_default().as_bytes_with_nul()).cast()
}

pub(crate) unsafe extern "C" fn dupinfo(from: *const fi_info) -> *mut fi_info {
    // SAFETY: an info or null, by the call's contract.
    let mut whole = unsafe { Whole::read(from) };
    let Whole {
        info,
        domain,
        fabric,
        ..
    } = &mut whole;
    for (address, len) in [
        (&mut info.src_addr, info.src_addrlen),
        (&mut info.dest_addr, info.dest_addrlen),
    ] {
        if !address.is_null() {
            // SAFETY: an info's address has the length it says.
            *address = copy(unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) });
        }
    }
    for name in [&mut domain.name, &mut fabric.name, &mut fabric.prov_name] {
        if !name.is_null() {
            // SAFETY: an info's names are C strings or null.
            *name = copy(unsafe { CStr::from_ptr(*name) }.to_bytes_with_nul()).cast();
        }
    }
    whole.leak()
}

pub(crate) unsafe extern "C" fn freeinfo(mut first: *mut fi_info) {
    while !first.is_null() {
        // SAFETY: an info of the fake that is not shared, by the call's contract.
        let Whole {
            info,
            domain,
            fabric,
            ..
        } = unsafe { Whole::read(first) };
        for name in [domain.name, fabric.name, fabric.prov_name] {
            // SAFETY: every pointer in such an info is null or from `malloc`; so below.
            unsafe { libc::free(name.cast()) };
        }
        for memory in [info.src_addr, info.dest_addr, first.cast()] {
            // SAFETY: as above; the attributes are in the same piece.
            unsafe { libc::free(memory) };
        }
        first = info.next;
    }
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
    fn a_provider_is_offered_only_to_users_that_give_what_it_wants() {
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
