//! The six functions that carry no object, each fabric with copies of its own.
//!
//! ```text
//!   getinfo::<0>  fabric::<0> --> TENANTS[0] --> fabric A, machine 0
//!   getinfo::<1>  fabric::<1> --> TENANTS[1] --> fabric A, machine 1
//!   getinfo::<2>  fabric::<2> --> TENANTS[2] --> fabric B, machine 0
//! ```
//!
//! Owns: which copy belongs to whom. C's functions take no context, so that many fabrics in one
//! process, as tests running at once have, can only be told apart by the functions themselves.
//! Knows nothing of: what the functions do.

use std::ffi::{c_char, c_void};
use std::sync::{Mutex, PoisonError, Weak};

use libc::c_int;
use libfabric_sys::Functions;
use libfabric_sys::abi::*;

use crate::objects::Shared;
use crate::{fabric, info};

/// Whom a copy belongs to.
#[derive(Clone)]
pub(crate) struct Tenant {
    pub(crate) home: Weak<Shared>,
    pub(crate) machine: usize,
}

/// Machines at once in one process. A copy is a few instructions; more can be had.
const SLOTS: usize = 256;

static TENANTS: Mutex<[Option<Tenant>; SLOTS]> = Mutex::new([const { None }; SLOTS]);

/// A copy of the functions, taken until dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    number: usize,
}

impl Slot {
    /// # Panics
    ///
    /// All copies are taken: the test has too many machines at once.
    pub(crate) fn take(tenant: Tenant) -> Self {
        let mut tenants = TENANTS.lock().unwrap_or_else(PoisonError::into_inner);
        let number = tenants.iter().position(Option::is_none);
        let number = number.unwrap_or_else(|| panic!("more than {SLOTS} machines at once"));
        tenants[number] = Some(tenant);
        Self { number }
    }

    pub(crate) fn functions(&self) -> Functions {
        Functions {
            getinfo: GETINFO[self.number],
            freeinfo: info::freeinfo,
            dupinfo: info::dupinfo,
            fabric: FABRIC[self.number],
            version,
            strerror,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut tenants = TENANTS.lock().unwrap_or_else(PoisonError::into_inner);
        tenants[self.number] = None;
    }
}

fn tenant(slot: usize) -> Option<Tenant> {
    TENANTS.lock().unwrap_or_else(PoisonError::into_inner)[slot].clone()
}

unsafe extern "C" fn getinfo<const SLOT: usize>(
    _version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    out: *mut *mut fi_info,
) -> c_int {
    let Some(tenant) = tenant(SLOT) else {
        return -FI_ENODATA;
    };
    // SAFETY: C strings or null, an info or null, an output: `fi_getinfo`'s contract.
    unsafe { info::getinfo(&tenant, node, service, flags, hints, out) }
}

unsafe extern "C" fn open_fabric<const SLOT: usize>(
    attr: *mut fi_fabric_attr,
    out: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    let Some(tenant) = tenant(SLOT) else {
        return -FI_ENODATA;
    };
    // SAFETY: attributes of an info, an output: `fi_fabric`'s contract.
    unsafe { fabric::open(&tenant, attr, out, context) }
}

unsafe extern "C" fn version() -> u32 {
    fi_version(1, 17)
}

unsafe extern "C" fn strerror(errnum: c_int) -> *const c_char {
    match errnum {
        FI_EOTHER => c"Unspecified error".as_ptr(),
        FI_ETOOSMALL => c"Provided buffer is too small".as_ptr(),
        FI_EOPBADSTATE => c"Operation not permitted in current state".as_ptr(),
        FI_EAVAIL => c"Error available".as_ptr(),
        FI_EBADFLAGS => c"Flags not supported".as_ptr(),
        FI_ETRUNC => c"Truncation error".as_ptr(),
        FI_ENOCQ => c"Missing or unavailable completion queue".as_ptr(),
        FI_ENOAV => c"Missing or unavailable address vector".as_ptr(),
        FI_ENOKEY => c"Required key not available".as_ptr(),
        FI_EOVERRUN => c"Queue has been overrun".as_ptr(),
        // SAFETY: takes any number; its text is constant for those of the system.
        0..256 => unsafe { libc::strerror(errnum) },
        _ => c"Unknown error".as_ptr(),
    }
}

/// Sixteen copies of a function, from number `16 * $row` on.
macro_rules! row {
    ($f:ident, $row:expr) => {
        [
            $f::<{ 16 * $row }>,
            $f::<{ 16 * $row + 1 }>,
            $f::<{ 16 * $row + 2 }>,
            $f::<{ 16 * $row + 3 }>,
            $f::<{ 16 * $row + 4 }>,
            $f::<{ 16 * $row + 5 }>,
            $f::<{ 16 * $row + 6 }>,
            $f::<{ 16 * $row + 7 }>,
            $f::<{ 16 * $row + 8 }>,
            $f::<{ 16 * $row + 9 }>,
            $f::<{ 16 * $row + 10 }>,
            $f::<{ 16 * $row + 11 }>,
            $f::<{ 16 * $row + 12 }>,
            $f::<{ 16 * $row + 13 }>,
            $f::<{ 16 * $row + 14 }>,
            $f::<{ 16 * $row + 15 }>,
        ]
    };
}

/// All copies.
macro_rules! copies {
    ($f:ident, $ty:ty) => {{
        let rows: [[$ty; 16]; 16] = [
            row!($f, 0),
            row!($f, 1),
            row!($f, 2),
            row!($f, 3),
            row!($f, 4),
            row!($f, 5),
            row!($f, 6),
            row!($f, 7),
            row!($f, 8),
            row!($f, 9),
            row!($f, 10),
            row!($f, 11),
            row!($f, 12),
            row!($f, 13),
            row!($f, 14),
            row!($f, 15),
        ];
        let mut all = [rows[0][0]; SLOTS];
        let mut at = 0;
        while at < SLOTS {
            all[at] = rows[at / 16][at % 16];
            at += 1;
        }
        all
    }};
}

static GETINFO: [libfabric_sys::GetInfo; SLOTS] = copies!(getinfo, libfabric_sys::GetInfo);
static FABRIC: [libfabric_sys::OpenFabric; SLOTS] = copies!(open_fabric, libfabric_sys::OpenFabric);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tenant_has_functions_of_its_own_and_gives_them_back() {
        let empty = || Tenant {
            home: Weak::new(),
            machine: 0,
        };
        let slots: Vec<Slot> = (0..20).map(|_| Slot::take(empty())).collect();
        let mut entries: Vec<usize> = slots
            .iter()
            .map(|slot| slot.functions().getinfo as usize)
            .collect();
        entries.sort_unstable();
        entries.dedup();
        assert_eq!(entries.len(), 20);
        drop(slots);
        // As many again and again: none was lost.
        for _ in 0..50 {
            let _slots: Vec<Slot> = (0..20).map(|_| Slot::take(empty())).collect();
        }
    }
}
