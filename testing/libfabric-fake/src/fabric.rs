//! Fabrics and domains: opening, closing, `fi_trywait`.
//!
//! ```text
//!   fi_fabric(offer) --> Fabric --> fi_domain(offer) --> Domain { shape, mr_mode, dead? }
//! ```
//!
//! Owns: the C calls of both.
//! Out of scope: the objects in a domain, except that none may be open when it is closed.

use std::ffi::{CStr, c_void};

use libc::c_int;
use libfabric_sys::abi::*;

use crate::faults::Call;
use crate::info::DEVICE;
use crate::objects::{Id, code, enter, identify};
use crate::slots::Tenant;
use crate::state::{Domain, Fabric, State};

/// # Safety
///
/// `fi_fabric`'s contract.
pub(crate) unsafe fn open(
    tenant: &Tenant,
    attr: *const fi_fabric_attr,
    out: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    let Some(home) = tenant.home.upgrade() else {
        return -FI_ENODATA;
    };
    // SAFETY: attributes or null, by the contract.
    let provider = unsafe { attr.as_ref() }.map(|attr| attr.prov_name);
    let Some(provider) = provider.filter(|name| !name.is_null()) else {
        return -FI_EINVAL;
    };
    // SAFETY: a C string, by the contract.
    let provider = unsafe { CStr::from_ptr(provider) }.to_string_lossy();
    home.with(|state| {
        if let Some(error) = state.refused(Call::Fabric) {
            return error as c_int;
        }
        let Some(offer) = state
            .offers
            .iter()
            .position(|shape| shape.provider == provider)
        else {
            return -FI_ENODATA;
        };
        let (id, pointer) = state.opened(FI_CLASS_FABRIC, None, context);
        state.fabrics.insert(
            id,
            Fabric {
                machine: tenant.machine,
                offer,
            },
        );
        // SAFETY: an output, by the contract.
        unsafe { out.write(pointer.cast()) };
        0
    })
}

pub(crate) unsafe extern "C" fn open_domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    out: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    let open = |state: &mut State, id: Id| {
        // SAFETY: an info, by the call's contract, and its attributes are null or valid.
        let attr = unsafe { info.as_ref().and_then(|info| info.domain_attr.as_ref()) };
        let (Some(attr), Some(fabric)) = (attr, state.fabrics.get(&id)) else {
            return code(FI_EINVAL);
        };
        let (machine, offer) = (fabric.machine, fabric.offer);
        let Some(device) = device(attr) else {
            return code(FI_EINVAL);
        };
        if state.machines[machine].removed.contains(&device) {
            return code(FI_ENODEV);
        }
        let shape = state.offers[offer].clone();
        let mr_mode = attr.mr_mode;
        let local = (shape.mr_mode ^ mr_mode) & FI_MR_LOCAL != 0;
        if local || mr_mode & !shape.mr_mode != 0 {
            let text = format!("fi_domain with mr_mode {mr_mode:#x}, which is not the offer's");
            state.violation(text);
        }
        let (domain, pointer) = state.opened(FI_CLASS_DOMAIN, None, context);
        state.domains.insert(
            domain,
            Domain {
                fabric: id,
                machine,
                offer,
                device,
                shape,
                mr_mode,
                dead: false,
                closed_keys: Vec::new(),
            },
        );
        // SAFETY: an output, by the call's contract.
        unsafe { out.write(pointer.cast()) };
        0
    };
    // SAFETY: an object of a fake.
    unsafe { enter(fabric.cast(), FI_CLASS_FABRIC, "fi_domain", open) as c_int }
}

/// Returns the number in a domain's name.
fn device(attr: &fi_domain_attr) -> Option<usize> {
    // SAFETY: null or a C string, by the contract of `fi_domain`.
    let name = (!attr.name.is_null()).then(|| unsafe { CStr::from_ptr(attr.name) })?;
    let number = name.to_str().ok()?.strip_prefix(DEVICE)?;
    number.split('-').next()?.parse().ok()
}

/// Returns 0 if a caller may sleep on the descriptors of these, or `-FI_EAGAIN` if there is work.
pub(crate) unsafe extern "C" fn trywait(
    fabric: *mut fid_fabric,
    fids: *mut *mut fid,
    count: c_int,
) -> c_int {
    let trywait = |state: &mut State, _: Id| {
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: `count` objects, by the call's contract.
            let object = unsafe { fids.wrapping_add(index).read() };
            // SAFETY: an object of a fake.
            let known = unsafe { identify(object.cast()) };
            let Some((queue, FI_CLASS_CQ)) = known else {
                return state.violated(
                    FI_EINVAL,
                    "fi_trywait of what is no completion queue".to_owned(),
                );
            };
            if !state.is_open(queue) {
                return state.violated(
                    FI_EBADF,
                    format!("fi_trywait of completion queue {queue}, closed"),
                );
            }
            if state.is_dead(queue) {
                return code(FI_ENODEV);
            }
            if !state.may_sleep(queue) {
                return code(FI_EAGAIN);
            }
        }
        0
    };
    // SAFETY: an object of a fake.
    unsafe { enter(fabric.cast(), FI_CLASS_FABRIC, "fi_trywait", trywait) as c_int }
}
