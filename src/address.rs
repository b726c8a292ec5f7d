//! Address objects: the host's handles of peers.
//!
//! ```text
//!   host ---> struct bmi_method_addr (the host writes into it)          | peer     one place of 64 bytes
//!                  | its address determines the place                      `--> one method's table
//!                  v
//!             registry: name, interface, C string, by place
//!
//!   chunk 0: 256 places   chunk 1: 1024   chunk 2: 4096 ...
//! ```
//!
//! Every look-up makes a new object, because the host drops each one (docs/hosts.md, Starting and ending). Objects
//! exist before the method is initialized and after it has been finalized. A pointer from the host is compared with the
//! chunks' addresses before it is read, so an invalid pointer does no harm. Chunks are never freed, and the place of a
//! dropped object is not reused for a while, because the host may still read it through an operation.
//!
//! Owns: the objects' memory, and the peer keys in it.
//! Out of scope: peers, the network.
//! Cost: finding an object is one comparison per chunk, without a lock.

use crate::abi::types::bmi_method_addr;
use crate::peer_name::PeerName;
use libc::{c_char, c_int};
use mx_proto::NicId;
use mx_proto::supply::Claim;
use mx_sys::fork::ForkLock;
use mx_sys::reserve;
use std::alloc::{self, Layout};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::CString;
use std::num::NonZeroU64;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// An address object's contents.
#[derive(Debug)]
pub struct Address {
    /// Name of the peer.
    pub name: PeerName,
    /// Name as a C string, valid as long as the object.
    text: CString,
    /// NIC id of the peer's interface; [`NOT_FOUND`] until its host has been resolved.
    nic: AtomicU64,
    /// Whether the peer connected to this process: the object serves that session only.
    pub has_called: bool,
}

/// Greater than any [`NicId`].
const NOT_FOUND: u64 = u64::MAX;

impl Address {
    /// Returns the peer's interface; `None` until its host has been resolved.
    pub fn nic(&self) -> Option<NicId> {
        NicId::new(self.nic.load(Ordering::Relaxed))
    }

    /// Stores the interface of the resolved host.
    pub fn set_nic(&self, nic: NicId) {
        self.nic.store(nic.0, Ordering::Relaxed);
    }
}

struct Registry {
    /// Contents by place; `None` for dropped objects.
    known: Vec<Option<Arc<Address>>>,
    /// Places of dropped objects, oldest first.
    dropped: VecDeque<usize>,
    /// Memory claimed for one more object.
    room: Claim,
    /// The `method_type` of objects, from `initialize`.
    method_type: c_int,
}

/// A place. All bits zero: free.
#[repr(C, align(64))]
struct Object {
    addr: UnsafeCell<bmi_method_addr>,
    /// Key of the peer as a word; 0: none.
    peer: AtomicU64,
}

/// Bytes that an object and its peer may need in all tables ([`Claim::new`]).
const ADDRESS_COST: usize = 2 << 10;

/// Number of dropped places kept out of use.
const KEPT: usize = 1024;

/// Number of places in the first chunk; each next one has four times as many.
const FIRST: usize = 256;

/// Chunks in order; never freed.
static CHUNKS: [AtomicPtr<Object>; 12] = [const { AtomicPtr::new(ptr::null_mut()) }; 12];

static REGISTRY: LazyLock<ForkLock<Registry>> = LazyLock::new(|| {
    ForkLock::new(Registry {
        known: Vec::new(),
        dropped: VecDeque::new(),
        room: Claim::new(reserve::SUPPLY, ADDRESS_COST),
        method_type: 0,
    })
});

/// Returns the number of places in a chunk, and in all chunks before it.
const fn chunk(class: usize) -> (usize, usize) {
    (FIRST << (2 * class), FIRST * ((1 << (2 * class)) - 1) / 3)
}

/// Returns the object at this address, and its place.
#[inline(always)]
fn object(addr: *const bmi_method_addr) -> Option<(&'static Object, usize)> {
    let (mut len, mut before) = chunk(0);
    for start in &CHUNKS {
        let start = start.load(Ordering::Acquire);
        if start.is_null() {
            break;
        }
        let offset = addr.addr().wrapping_sub(start.addr());
        if offset < len * size_of::<Object>() {
            let place = offset / size_of::<Object>();
            if offset % size_of::<Object>() != 0 {
                break;
            }
            // SAFETY: within a chunk, which is never freed.
            return Some((unsafe { &*start.add(place) }, before + place));
        }
        (len, before) = (len * 4, before + len);
    }
    None
}

/// Returns the object at a place, allocating its chunk if necessary. Called with the registry's lock.
fn at(place: usize) -> *mut Object {
    let mut class = 0;
    while place >= chunk(class + 1).1 {
        class += 1;
    }
    let (len, before) = chunk(class);
    let mut start = CHUNKS[class].load(Ordering::Acquire);
    if start.is_null() {
        // The fallback is never used: `len` objects fit into the address space.
        let layout = Layout::array::<Object>(len).unwrap_or(Layout::new::<Object>());
        // SAFETY: the layout's size is not 0.
        start = unsafe { alloc::alloc_zeroed(layout) }.cast();
        if start.is_null() {
            alloc::handle_alloc_error(layout);
        }
        CHUNKS[class].store(start, Ordering::Release);
    }
    // SAFETY: within the chunk.
    unsafe { start.add(place - before) }
}

/// Returns the key of an object's peer, as a word; `None` without a peer or for an invalid pointer.
#[inline(always)]
pub fn peer(addr: *const bmi_method_addr) -> Option<NonZeroU64> {
    let start = CHUNKS[0].load(Ordering::Acquire);
    let offset = addr.addr().wrapping_sub(start.addr());
    let is_first = !start.is_null() && offset < FIRST * size_of::<Object>();
    let object = if is_first && offset % size_of::<Object>() == 0 {
        // SAFETY: within the first chunk, which is never freed.
        unsafe { &*start.byte_add(offset) }
    } else {
        object_anywhere(addr)?
    };
    NonZeroU64::new(object.peer.load(Ordering::Relaxed))
}

#[inline(never)]
fn object_anywhere(addr: *const bmi_method_addr) -> Option<&'static Object> {
    Some(object(addr)?.0)
}

/// Sets the peer of an object; `None` removes it.
pub fn set_peer(addr: *const bmi_method_addr, word: Option<NonZeroU64>) {
    if let Some((object, _)) = object(addr) {
        let word = word.map_or(0, NonZeroU64::get);
        object.peer.store(word, Ordering::Relaxed);
    }
}

/// Returns whether there is memory for one more object.
pub fn has_room() -> bool {
    let registry = &mut *REGISTRY.lock();
    registry
        .room
        .admits(registry.known.len() - registry.dropped.len())
}

/// Makes an object for a named peer that this process connects to.
pub fn create(name: PeerName, nic: Option<NicId>) -> NonNull<bmi_method_addr> {
    make(name, nic, false)
}

/// Makes the object of a peer that connected to this process, for that session only.
pub fn create_for_caller(name: PeerName, nic: NicId) -> NonNull<bmi_method_addr> {
    make(name, Some(nic), true)
}

fn make(name: PeerName, nic: Option<NicId>, has_called: bool) -> NonNull<bmi_method_addr> {
    let text = name.to_string();
    // A parsed name has no NUL; should it have one, the string ends there.
    let text = CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default();
    let address = Some(Arc::new(Address {
        name,
        text,
        nic: AtomicU64::new(nic.map_or(NOT_FOUND, |nic| nic.0)),
        has_called,
    }));
    let registry = &mut *REGISTRY.lock();
    let rested = registry.dropped.len() > KEPT;
    let place = if rested {
        registry.dropped.pop_front()
    } else {
        None
    };
    let place = place.unwrap_or(registry.known.len());
    let object = at(place);
    if place < registry.known.len() {
        registry.known[place] = address;
    } else {
        registry.known.push(address);
    }
    // SAFETY: a free place of a chunk.
    unsafe {
        let addr = (*object).addr.get();
        addr.write(bmi_method_addr::new(registry.method_type));
        NonNull::new_unchecked(addr)
    }
}

/// Returns the contents of an object; `None` for an invalid pointer.
pub fn find(addr: *const bmi_method_addr) -> Option<Arc<Address>> {
    let (_, place) = object(addr)?;
    REGISTRY.lock().known.get(place)?.clone()
}

/// Drops an object. Returns false if there is no such object.
pub fn remove(addr: *const bmi_method_addr) -> bool {
    let Some((_, place)) = object(addr) else {
        return false;
    };
    let mut registry = REGISTRY.lock();
    let known = registry.known.get_mut(place).and_then(Option::take);
    if known.is_some() {
        set_peer(addr, None);
        registry.dropped.push_back(place);
    }
    known.is_some()
}

/// Drops all objects.
pub fn remove_all() {
    let places = REGISTRY.lock().known.len();
    for place in 0..places {
        // SAFETY: a place whose chunk exists.
        let addr = unsafe { (*at(place)).addr.get() };
        remove(addr);
    }
}

/// Starts the method: stores the host's number for it in all objects, dropped ones included, as the host may still read
/// them through an operation. Clears the peers, which in a child of fork are the parent's.
pub fn begin(method_type: c_int) {
    let mut registry = REGISTRY.lock();
    registry.method_type = method_type;
    for place in 0..registry.known.len() {
        let object = at(place);
        // SAFETY: an object of a chunk. The host writes this field, too, but not while it initializes the method
        // (docs/hosts.md, Threads).
        unsafe {
            (*(*object).addr.get()).method_type = method_type;
            (*object).peer.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns the object's name as a C string; null if there is no such object.
pub fn text(addr: *const bmi_method_addr) -> *const c_char {
    // The string lives on the heap until the object is removed.
    find(addr).map_or(ptr::null(), |address| address.text.as_ptr())
}

/// Returns the number of objects in use.
pub fn count() -> usize {
    let registry = REGISTRY.lock();
    registry.known.len() - registry.dropped.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_proto::Route;
    use std::ffi::CStr;

    fn name(endpoint: u32) -> PeerName {
        PeerName {
            host: "host".into(),
            board: None,
            endpoint: Some(endpoint),
            route: Route::AUTO,
        }
    }

    #[test]
    fn every_lookup_gives_an_object_of_its_own() {
        let (a, b) = (create(name(3), None), create(name(3), None));
        assert_ne!(a, b);
        assert!(find(a.as_ptr()).is_some() && find(b.as_ptr()).is_some());
        assert!(remove(a.as_ptr()));
        assert!(find(a.as_ptr()).is_none() && find(b.as_ptr()).is_some());
        assert!(remove(b.as_ptr()));
    }

    #[test]
    fn dropping_twice_or_dropping_nonsense_does_nothing() {
        let a = create(name(4), None);
        assert!(remove(a.as_ptr()));
        assert!(!remove(a.as_ptr()));
        assert!(!remove(ptr::null()));
        assert!(!remove(0xdead_beef as *const bmi_method_addr));
    }

    #[test]
    fn the_host_can_read_a_dropped_object_for_a_while() {
        let a = create(name(5), None);
        remove(a.as_ptr());
        // SAFETY: kept among the last dropped ones.
        assert!(unsafe { (*a.as_ptr()).method_type } >= 0);
    }

    #[test]
    fn the_text_is_the_name() {
        let a = create(name(6), Some(NicId(1)));
        // SAFETY: a C string that lives as long as the object.
        let text = unsafe { CStr::from_ptr(text(a.as_ptr())) };
        assert_eq!(text.to_str(), Ok("mx://host:6"));
        assert_eq!(find(a.as_ptr()).unwrap().nic(), Some(NicId(1)));
        remove(a.as_ptr());
        assert!(super::text(a.as_ptr()).is_null());
    }
}
