//! The functions without an object argument; each fabric has copies of its own.
//!
//! ```text
//!   getinfo::<0>  fabric::<0> --> TENANTS[0] --> fabric A, machine 0
//!   getinfo::<1>  fabric::<1> --> TENANTS[1] --> fabric A, machine 1
//!   getinfo::<2>  fabric::<2> --> TENANTS[2] --> fabric B, machine 0
//! ```
//!
//! Owns: the assignment of copies. C's functions have no context, so only the functions themselves
//! can distinguish many fabrics in one process, as in parallel tests.
//! Out of scope: the implementation of the functions.

use std::ffi::{c_char, c_void};
use std::sync::{Mutex, PoisonError, Weak};

use libc::c_int;
use libfabric_sys::Functions;
use libfabric_sys::abi::*;

use crate::objects::Shared;
use crate::{fabric, info};

/// Owner of a copy.
#[derive(Clone)]
pub(crate) struct Tenant {
    pub(crate) home: Weak<Shared>,
    pub(crate) machine: usize,
}

/// Machines at a time in one process. A copy is a few instructions, so more would be possible.
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
    /// If all copies are in use: the test has too many machines at a time.
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
        // SAFETY: takes any number; the texts of system errors are constant.
        0..256 => unsafe { libc::strerror(errnum) },
        _ => c"an error of libfabric's own".as_ptr(),
    }
}

/// Makes the copies of both functions with these numbers.
macro_rules! copies {
    ($($n:literal)*) => {
        static GETINFO: [libfabric_sys::GetInfo; SLOTS] = [$(getinfo::<$n>),*];
        static FABRIC: [libfabric_sys::OpenFabric; SLOTS] = [$(open_fabric::<$n>),*];
    };
}

copies! {
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
    16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47
    48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
    64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79
    80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95
    96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111
    112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127
    128 129 130 131 132 133 134 135 136 137 138 139 140 141 142 143
    144 145 146 147 148 149 150 151 152 153 154 155 156 157 158 159
    160 161 162 163 164 165 166 167 168 169 170 171 172 173 174 175
    176 177 178 179 180 181 182 183 184 185 186 187 188 189 190 191
    192 193 194 195 196 197 198 199 200 201 202 203 204 205 206 207
    208 209 210 211 212 213 214 215 216 217 218 219 220 221 222 223
    224 225 226 227 228 229 230 231 232 233 234 235 236 237 238 239
    240 241 242 243 244 245 246 247 248 249 250 251 252 253 254 255
}

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
        // Copies can be taken again: none is lost.
        for _ in 0..50 {
            let _slots: Vec<Slot> = (0..20).map(|_| Slot::take(empty())).collect();
        }
    }
}
