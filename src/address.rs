//! Address objects: the host's handles of peers.
//!
//! ```text
//!   host ---> struct bmi_method_addr (the host writes into it)          | peer, interface     one place of 64 bytes
//!                  | its address determines the place                       `--> one method's table
//!                  v
//!             registry: name, C string, by place
//!
//!   [ 256 places | 256 | 256 ...  | reserved        ]
//! ```
//!
//! Every look-up makes a new object, because the host drops each one (docs/hosts.md, Starting and ending). Objects
//! exist before the method is initialized and after it has been finalized. A pointer from the host is compared with the
//! range of places before it is read, so an invalid pointer does no harm. Places are never unmapped, and that of a
//! dropped object is not reused for a while, because the host may still read it through an operation.
//!
//! Owns: the objects' memory, and the peer keys in it.
//! Out of scope: peers, the network.
//! Cost: finding an object is one comparison, without a lock.

use crate::abi::types::bmi_method_addr;
use crate::peer_name::PeerName;
use libc::{c_char, c_int};
use mx_proto::supply::Claim;
use mx_proto::{NicId, table};
use mx_sys::fork::ForkLock;
use mx_sys::reservation::Reservation;
use mx_sys::reserve;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::CString;
use std::num::NonZeroU64;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

/// Contents of an address object, apart from those that the host writes.
struct Known {
    /// Name as a C string, valid as long as the object.
    text: CString,
    /// Name that the host has looked up; `None`: the peer connected to this process, and the object serves that session only.
    name: Option<Arc<PeerName>>,
}

struct Registry {
    /// Memory of the places; `None`: there is no address space for it.
    places: Option<Reservation>,
    /// Contents by place; `None` for dropped objects.
    known: Vec<Option<Known>>,
    /// Places of dropped objects, oldest first.
    dropped: VecDeque<usize>,
    /// Memory claimed for one more object.
    room: Claim,
    /// The `method_type` of objects, from `initialize`.
    method_type: c_int,
}

/// A place.
#[repr(C, align(64))]
struct Object {
    addr: UnsafeCell<bmi_method_addr>,
    /// Key of the peer as a word; 0: none.
    peer: AtomicU64,
    /// NIC id of the peer's interface; [`NOT_FOUND`] until its host has been resolved.
    nic: AtomicU64,
}

/// Greater than any [`NicId`].
const NOT_FOUND: u64 = u64::MAX;

/// Bytes that an object and its peer may need in all tables ([`Claim::new`]).
const ADDRESS_COST: usize = 2 << 10;

/// Number of dropped places kept out of use.
const KEPT: usize = 1024;

/// Most bytes of places: 16 million objects.
const MOST: usize = size_of::<Object>() << 24;

/// Bytes of places that are added at a time.
const MORE: usize = size_of::<Object>() << 8;

/// First place.
static START: AtomicPtr<Object> = AtomicPtr::new(ptr::null_mut());

/// Bytes of places that can be read.
static OPEN: AtomicUsize = AtomicUsize::new(0);

static REGISTRY: LazyLock<ForkLock<Registry>> = LazyLock::new(|| {
    ForkLock::new(Registry {
        places: Reservation::new(MOST),
        known: Vec::new(),
        dropped: VecDeque::new(),
        room: Claim::new(reserve::SUPPLY, ADDRESS_COST),
        method_type: 0,
    })
});

impl Registry {
    /// Returns a place for an object; `None` if there is no memory for it.
    fn take_place(&mut self) -> Option<usize> {
        if self.dropped.len() > KEPT {
            return self.dropped.pop_front();
        }
        let place = self.known.len();
        let places = self.places.as_mut()?;
        if (place + 1) * size_of::<Object>() > places.open() {
            if !places.grow(MORE) {
                return None;
            }
            START.store(places.start().cast().as_ptr(), Ordering::Relaxed);
            OPEN.store(places.open(), Ordering::Release);
        }
        table::reserve(&mut self.known, place + 1);
        self.known.push(None);
        Some(place)
    }
}

/// Returns the object at this address, and its place.
#[inline(always)]
fn object(addr: *const bmi_method_addr) -> Option<(&'static Object, usize)> {
    let open = OPEN.load(Ordering::Acquire);
    let start = START.load(Ordering::Relaxed);
    let offset = addr.addr().wrapping_sub(start.addr());
    if offset >= open || offset % size_of::<Object>() != 0 {
        return None;
    }
    // SAFETY: a place, all of which stay, and which is valid with zeros, too.
    Some((
        unsafe { &*start.byte_add(offset) },
        offset / size_of::<Object>(),
    ))
}

/// Returns the object at a place that has been taken.
fn at(place: usize) -> &'static Object {
    // SAFETY: as in `object`.
    unsafe { &*START.load(Ordering::Relaxed).add(place) }
}

/// Returns the key of an address object's peer, as a word (`PeerKey::to_word`). `None` if the object has no peer, or
/// the pointer is no address object.
#[inline(always)]
pub fn peer(addr: *const bmi_method_addr) -> Option<NonZeroU64> {
    let (object, _) = object(addr)?;
    NonZeroU64::new(object.peer.load(Ordering::Relaxed))
}

/// Stores the key of an address object's peer, as a word (`None`: no peer). Has no effect on a pointer that is no
/// address object.
pub fn set_peer(addr: *const bmi_method_addr, word: Option<NonZeroU64>) {
    if let Some((object, _)) = object(addr) {
        let word = word.map_or(0, NonZeroU64::get);
        object.peer.store(word, Ordering::Relaxed);
    }
}

/// Returns the interface to which an address object's host name was resolved; `None` until then, and for an invalid
/// pointer.
pub fn nic(addr: *const bmi_method_addr) -> Option<NicId> {
    NicId::new(object(addr)?.0.nic.load(Ordering::Relaxed))
}

/// Stores the interface to which an address object's host name was resolved. Has no effect on an invalid pointer.
pub fn set_nic(addr: *const bmi_method_addr, nic: NicId) {
    if let Some((object, _)) = object(addr) {
        object.nic.store(nic.0, Ordering::Relaxed);
    }
}

/// Returns whether there is memory for one more address object.
pub fn has_room() -> bool {
    let registry = &mut *REGISTRY.lock();
    registry
        .room
        .admits(registry.known.len() - registry.dropped.len())
}

/// Makes an address object for a peer that the host has looked up by `name`. `nic`: interface to which the name
/// resolves; `None` if not resolved yet. Returns `None` if there is no memory for the object.
pub fn create(name: PeerName, nic: Option<NicId>) -> Option<NonNull<bmi_method_addr>> {
    make(name.to_string(), Some(Arc::new(name)), nic)
}

/// Makes the address object of a peer that connected to this process, for that session only. `None` if there is no
/// memory for it.
pub fn create_for_caller(name: &PeerName, nic: NicId) -> Option<NonNull<bmi_method_addr>> {
    make(name.to_string(), None, Some(nic))
}

fn make(
    text: String,
    name: Option<Arc<PeerName>>,
    nic: Option<NicId>,
) -> Option<NonNull<bmi_method_addr>> {
    // A parsed name has no NUL; should it have one, the string ends there.
    let text = CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default();
    let registry = &mut *REGISTRY.lock();
    let place = registry.take_place()?;
    registry.known[place] = Some(Known { text, name });
    let object = at(place);
    object
        .nic
        .store(nic.map_or(NOT_FOUND, |nic| nic.0), Ordering::Relaxed);
    let addr = object.addr.get();
    // SAFETY: a free place of ours.
    unsafe { addr.write(bmi_method_addr::new(registry.method_type)) };
    NonNull::new(addr)
}

/// Returns the name that an address object was looked up with; `None` for an invalid pointer or a peer that connected.
pub fn name(addr: *const bmi_method_addr) -> Option<Arc<PeerName>> {
    let (_, place) = object(addr)?;
    let registry = REGISTRY.lock();
    registry.known.get(place)?.as_ref()?.name.clone()
}

/// Drops an address object: the pointer is no longer accepted, and its memory is reused after many other objects.
/// Returns false if there is no such object.
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
        remove(at(place).addr.get());
    }
}

/// Prepares all address objects for a newly initialized method: stores the host's number for it in them, in dropped
/// ones, too, as the host may still read them through an operation. Detaches their peers, which in a child of `fork`
/// are the parent's.
pub fn begin(method_type: c_int) {
    let mut registry = REGISTRY.lock();
    registry.method_type = method_type;
    for place in 0..registry.known.len() {
        let object = at(place);
        // SAFETY: a place of ours. The host writes this field, too, but not while it initializes the method
        // (docs/hosts.md, Threads).
        unsafe { (*object.addr.get()).method_type = method_type };
        object.peer.store(0, Ordering::Relaxed);
    }
}

/// Returns whether a pointer is an address object that was not dropped. Any pointer may be passed.
pub fn exists(addr: *const bmi_method_addr) -> bool {
    !text(addr).is_null()
}

/// Returns an address object's name as a C string, valid as long as the object; null for any other pointer.
pub fn text(addr: *const bmi_method_addr) -> *const c_char {
    let place = object(addr).map(|(_, place)| place);
    let registry = REGISTRY.lock();
    let known = place.and_then(|place| registry.known.get(place)?.as_ref());
    known.map_or(ptr::null(), |known| known.text.as_ptr())
}

/// Returns the number of address objects that were not dropped.
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
        let (a, b) = (
            create(name(3), None).unwrap(),
            create(name(3), None).unwrap(),
        );
        assert_ne!(a, b);
        assert!(super::name(a.as_ptr()).is_some() && super::name(b.as_ptr()).is_some());
        assert!(remove(a.as_ptr()));
        assert!(super::name(a.as_ptr()).is_none() && super::name(b.as_ptr()).is_some());
        assert!(remove(b.as_ptr()));
    }

    #[test]
    fn dropping_twice_or_dropping_nonsense_does_nothing() {
        let a = create(name(4), None).unwrap();
        assert!(remove(a.as_ptr()));
        assert!(!remove(a.as_ptr()));
        assert!(!remove(ptr::null()));
        assert!(!remove(0xdead_beef as *const bmi_method_addr));
    }

    #[test]
    fn the_host_can_read_a_dropped_object_for_a_while() {
        let a = create(name(5), None).unwrap();
        remove(a.as_ptr());
        // SAFETY: kept among the last dropped ones.
        assert!(unsafe { (*a.as_ptr()).method_type } >= 0);
    }

    #[test]
    fn the_text_is_the_name() {
        let a = create(name(6), Some(NicId(1))).unwrap();
        // SAFETY: a C string that lives as long as the object.
        let text = unsafe { CStr::from_ptr(text(a.as_ptr())) };
        assert_eq!(text.to_str(), Ok("mx://host:6"));
        assert_eq!(nic(a.as_ptr()), Some(NicId(1)));
        remove(a.as_ptr());
        assert!(super::text(a.as_ptr()).is_null());
    }
}
