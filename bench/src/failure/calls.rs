//! A counterpart's functions beside messages, and lists of buffers.
//!
//! Owns: a host's functions, which the library calls.

use crate::bmi::Bmi;
use bmi_host::abi;
use bmi_host::method::{Address, Memory, Posted, Verb};
use libc::c_void;
use std::ffi::OsStr;
use std::sync::Mutex;

/// Posts one buffer cut into `pieces`; as a list if they are more than one.
///
/// # Safety
/// As for [`Bmi::post`].
pub(crate) unsafe fn post_pieces(
    bmi: &Bmi,
    verb: Verb,
    with: Address,
    tag: i32,
    (base, len, pieces): (*mut u8, usize, usize),
    user: usize,
) -> Posted {
    let cut = |n: usize| len * n / pieces;
    let sizes: Vec<i64> = (0..pieces).map(|n| (cut(n + 1) - cut(n)) as i64).collect();
    let starts: Vec<*mut c_void> = (0..pieces)
        .map(|n| base.wrapping_add(cut(n)).cast())
        .collect();
    let memory = if pieces > 1 {
        Memory::List {
            starts: starts.as_ptr(),
            sizes: sizes.as_ptr(),
            count: pieces,
            total: len as i64,
        }
    } else {
        Memory::One(base, len)
    };
    // SAFETY: the caller's promise; the lists live as long as the call, which is long enough.
    unsafe { bmi.post(verb, with, tag, memory, user) }
}

/// Gives the address of a dead peer back, if the method has no more use for it.
pub(crate) fn drop_dead(bmi: &Bmi, peer: Address) -> bool {
    let may = bmi.method.may_drop(peer);
    if may {
        bmi.method.drop_address(peer);
    }
    may
}

/// Peers the library has said are dead, by the names `register` gave them.
static FORGOTTEN: Mutex<Vec<Address>> = Mutex::new(Vec::new());
/// The number of peers that the library has told us of.
static KNOWN: Mutex<usize> = Mutex::new(0);

/// Makes this process a host, which has an address for every peer until that is dead. To be called
/// before the method is started.
pub(crate) fn be_host(library: &OsStr) -> Result<(), String> {
    let host = abi::Host {
        size: size_of::<abi::Host>(),
        reg_addr: Some(register),
        forget_addr: Some(forget),
        log: None,
    };
    abi::set_host(library, &host)
}

/// Peers that are to be forgotten since the last call. Not yet given back: the library may not be
/// called from inside its own.
pub(crate) fn forgotten() -> Vec<Address> {
    let Ok(mut list) = FORGOTTEN.lock() else {
        return Vec::new();
    };
    std::mem::take(&mut *list)
}

/// The number of peers that have been made known.
pub(crate) fn introduced() -> usize {
    KNOWN.lock().map_or(0, |count| *count)
}

extern "C" fn register(addr: *mut c_void) -> i64 {
    if let Ok(mut count) = KNOWN.lock() {
        *count += 1;
    }
    addr as i64
}

extern "C" fn forget(name: i64) -> i32 {
    if let Ok(mut list) = FORGOTTEN.lock() {
        list.push(Address(name as usize));
    }
    0
}
