//! Address vectors.
//!
//! ```text
//!   insert(address) -> fi_addr_t    the lowest free place, so removed places are soon reused
//!   lookup(fi_addr_t) -> address
//! ```
//!
//! Owns: places, the number of inserts of each address, and the C calls.
//! Out of scope: whether an endpoint exists at an address.

use std::ffi::c_void;

use libc::c_int;
use libfabric_sys::abi::*;

use crate::objects::{Id, code, enter};
use crate::shape::Shape;
use crate::state::State;

#[derive(Default)]
pub(crate) struct Vector {
    /// Addresses, each with its number of inserts.
    places: Vec<Option<(Vec<u8>, usize)>>,
}

impl Vector {
    pub(crate) fn insert(&mut self, address: &[u8]) -> u64 {
        let same = |place: &Option<(Vec<u8>, usize)>| {
            place.as_ref().is_some_and(|(known, _)| known == address)
        };
        if let Some(place) = self.places.iter().position(same) {
            if let Some((_, times)) = &mut self.places[place] {
                *times += 1;
            }
            return place as u64;
        }
        let entry = Some((address.to_vec(), 1));
        let place = match self.places.iter().position(Option::is_none) {
            Some(free) => {
                self.places[free] = entry;
                free
            }
            None => {
                self.places.push(entry);
                self.places.len() - 1
            }
        };
        place as u64
    }

    /// Removes an address; returns false if there is none.
    pub(crate) fn remove(&mut self, handle: u64) -> bool {
        let place = usize::try_from(handle).ok();
        let place = place.and_then(|place| self.places.get_mut(place));
        match place {
            Some(slot @ Some(_)) => {
                if let Some((_, times)) = slot {
                    *times -= 1;
                    if *times == 0 {
                        *slot = None;
                    }
                }
                true
            }
            _ => false,
        }
    }

    pub(crate) fn lookup(&self, handle: u64) -> Option<&[u8]> {
        let place = self.places.get(usize::try_from(handle).ok()?)?;
        place.as_ref().map(|(address, _)| address.as_slice())
    }
}

pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    out: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: attributes or null, by the call's contract.
    let kind = unsafe { attr.as_ref() }.map_or(FI_AV_UNSPEC, |attr| attr.r#type);
    let open = |state: &mut State, id: Id| {
        if kind > FI_AV_TABLE || out.is_null() {
            return code(FI_EINVAL);
        }
        let (av, pointer) = state.opened(FI_CLASS_AV, Some(id), context);
        state.vectors.insert(av, Vector::default());
        // SAFETY: an output, by the call's contract; not null.
        unsafe { out.write(pointer.cast()) };
        0
    };
    // SAFETY: an object of a fake.
    unsafe { enter(domain.cast(), FI_CLASS_DOMAIN, "fi_av_open", open) as c_int }
}

/// Returns the error of an address, if it has one.
fn wrong(shape: &Shape, address: &[u8]) -> Option<String> {
    if shape.address_format != FI_SOCKADDR_IN {
        let empty = address.iter().all(|byte| *byte == 0);
        return empty.then(|| "an address of zeros".to_owned());
    }
    let family = u16::from_ne_bytes([address[0], address[1]]);
    let port = u16::from_be_bytes([address[2], address[3]]);
    if i32::from(family) != libc::AF_INET {
        Some(format!("an address of family {family}"))
    } else if port == 0 {
        Some("port 0".to_owned())
    } else {
        None
    }
}

pub(crate) unsafe extern "C" fn insert(
    av: *mut fid_av,
    addr: *const c_void,
    count: usize,
    fi_addr: *mut fi_addr_t,
    _flags: u64,
    _context: *mut c_void,
) -> c_int {
    let insert = |state: &mut State, id: Id| {
        let shape = state.domain(id).shape.clone();
        if addr.is_null() {
            return state.violated(FI_EINVAL, "fi_av_insert of no address".to_owned());
        }
        let mut inserted = 0;
        for index in 0..count {
            let from = addr.cast::<u8>().wrapping_add(index * shape.address_len);
            // SAFETY: `count` addresses of the domain's format, by the call's contract.
            let address = unsafe { std::slice::from_raw_parts(from, shape.address_len) };
            let handle = match (wrong(&shape, address), state.vectors.get_mut(&id)) {
                (None, Some(vector)) => {
                    inserted += 1;
                    vector.insert(address)
                }
                (what, _) => {
                    let what = what.unwrap_or_default();
                    state.violation(format!("fi_av_insert of {what}"));
                    FI_ADDR_NOTAVAIL
                }
            };
            if !fi_addr.is_null() {
                // SAFETY: room for `count` results, by the call's contract.
                unsafe { fi_addr.wrapping_add(index).write(handle) };
            }
        }
        inserted
    };
    // SAFETY: an object of a fake.
    unsafe { enter(av.cast(), FI_CLASS_AV, "fi_av_insert", insert) as c_int }
}

pub(crate) unsafe extern "C" fn remove(
    av: *mut fid_av,
    fi_addr: *mut fi_addr_t,
    count: usize,
    flags: u64,
) -> c_int {
    let remove = |state: &mut State, id: Id| {
        if flags != 0 {
            state.violation(format!("fi_av_remove with flags {flags:#x}"));
        }
        for index in 0..count {
            // SAFETY: `count` handles, by the call's contract.
            let handle = unsafe { fi_addr.wrapping_add(index).read() };
            let removed = state
                .vectors
                .get_mut(&id)
                .is_some_and(|av| av.remove(handle));
            if !removed {
                return state.violated(
                    FI_EINVAL,
                    format!("fi_av_remove of {handle:#x}, which is not in it"),
                );
            }
        }
        0
    };
    // SAFETY: an object of a fake.
    unsafe { enter(av.cast(), FI_CLASS_AV, "fi_av_remove", remove) as c_int }
}

/// Copies as much of an address as fits, and stores its whole length. Returns true if all of it
/// fitted.
///
/// # Safety
///
/// `len` is null or holds the number of bytes at `to`.
pub(crate) unsafe fn give_address(address: &[u8], to: *mut c_void, len: *mut usize) -> bool {
    // SAFETY: the caller guarantees it.
    let Some(len) = (unsafe { len.as_mut() }) else {
        return false;
    };
    let room = if to.is_null() { 0 } else { *len };
    let now = room.min(address.len());
    // SAFETY: the caller guarantees `now` bytes; the address is the fake's own.
    unsafe { std::ptr::copy_nonoverlapping(address.as_ptr(), to.cast(), now) };
    *len = address.len();
    room >= address.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_place_is_given_to_the_next() {
        let mut av = Vector::default();
        assert_eq!((av.insert(&[1]), av.insert(&[2])), (0, 1));
        assert!(av.remove(0) && !av.remove(0));
        assert_eq!(av.lookup(0), None);
        assert_eq!(av.insert(&[3]), 0);
        assert_eq!(av.lookup(0), Some(&[3][..]));
    }

    #[test]
    fn an_address_inserted_twice_is_removed_twice() {
        let mut av = Vector::default();
        let handle = av.insert(&[1]);
        assert_eq!(av.insert(&[1]), handle);
        assert!(av.remove(handle));
        assert_eq!(av.lookup(handle), Some(&[1][..]));
        assert!(av.remove(handle) && !av.remove(handle));
        assert!(!av.remove(7));
    }
}
