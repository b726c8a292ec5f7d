//! Address objects: what the host holds in its hands for a peer.
//!
//! ```text
//!   host ---> struct bmi_method_addr (24 bytes, the host writes into it)
//!                  | its address is the key
//!                  v
//!             registry: name, interface, text for people       (this file)
//!             peers:    which peer it stands for               (one method's table)
//! ```
//!
//! Every look-up makes an object of its own, for the host gives each one back on its own
//! (BMI-HOST-ABI.md section 4). They exist before the method is initialized and after it has been
//! finalized. An object is only ever recognised by its address, never read, so a pointer that is
//! no object of ours does no harm. One that was dropped stays mapped for a while, as the host may
//! still look at it through an operation.
//!
//! Owns: the objects' memory. Knows nothing of: peers, the network.

use crate::abi::types::bmi_method_addr;
use crate::peer_name::PeerName;
use foldhash::fast::RandomState;
use libc::{c_char, c_int};
use mx_proto::NicId;
use mx_proto::supply::Claim;
use mx_sys::reserve;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::ptr::{self, NonNull};
use std::sync::{Arc, LazyLock};

/// What is known about an address object.
#[derive(Debug)]
pub struct Address {
    /// The peer's name.
    pub name: PeerName,
    /// The name for C, valid as long as the object.
    text: CString,
    /// The peer's interface, once its host has been found.
    nic: Mutex<Option<NicId>>,
}

impl Address {
    /// The peer's interface, once its host has been found.
    pub fn nic(&self) -> Option<NicId> {
        *self.nic.lock()
    }

    /// Its host has been found.
    pub fn set_nic(&self, nic: NicId) {
        *self.nic.lock() = Some(nic);
    }
}

struct Registry {
    live: HashMap<usize, (Object, Arc<Address>), RandomState>,
    /// Dropped objects whose memory is kept, oldest first.
    dropped: VecDeque<Object>,
    /// Room for one more live one.
    room: Claim,
    /// What `initialize` was told, for the objects' `method_type`.
    method_type: c_int,
}

/// An object's memory.
struct Object(NonNull<bmi_method_addr>);

// SAFETY: the registry alone frees it; others only have its address.
unsafe impl Send for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `create`, and freed only here.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// What all tables have for an object and its peer ([`Claim::new`]).
const ADDRESS_COST: usize = 2 << 10;

/// Dropped objects whose memory is kept.
const KEPT: usize = 1024;

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(|| {
    Mutex::new(Registry {
        live: HashMap::default(),
        dropped: VecDeque::new(),
        room: Claim::new(reserve::SUPPLY, ADDRESS_COST),
        method_type: 0,
    })
});

/// Is there memory for one more that the host asks for?
pub fn has_room() -> bool {
    let registry = &mut *REGISTRY.lock();
    registry.room.admits(registry.live.len())
}

/// Makes an object for a peer of that name.
pub fn create(name: PeerName, nic: Option<NicId>) -> NonNull<bmi_method_addr> {
    let text = name.to_string();
    // A parsed name has no NUL; should it have one, the text ends there.
    let text = CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default();
    let address = Arc::new(Address {
        name,
        text,
        nic: Mutex::new(nic),
    });
    let mut registry = REGISTRY.lock();
    let object = Box::new(bmi_method_addr {
        method_type: registry.method_type,
        // Says that it is ours, to a person with a debugger. Never followed.
        method_data: Arc::as_ptr(&address).cast_mut().cast(),
        parent: ptr::null_mut(),
    });
    let object = NonNull::from(Box::leak(object));
    let key = object.as_ptr() as usize;
    registry.live.insert(key, (Object(object), address));
    object
}

/// What is known about an object; `None` when there is no such object.
pub fn find(addr: *const bmi_method_addr) -> Option<Arc<Address>> {
    let registry = REGISTRY.lock();
    let (_, address) = registry.live.get(&(addr as usize))?;
    Some(Arc::clone(address))
}

/// An object is no longer used. False when there is no such object.
pub fn remove(addr: *const bmi_method_addr) -> bool {
    let mut registry = REGISTRY.lock();
    let Some((object, _)) = registry.live.remove(&(addr as usize)) else {
        return false;
    };
    registry.dropped.push_back(object);
    if registry.dropped.len() > KEPT {
        registry.dropped.pop_front();
    }
    true
}

/// The host's number for this method, for all objects there are and will be.
pub fn set_method_type(method_type: c_int) {
    let mut registry = REGISTRY.lock();
    registry.method_type = method_type;
    for (object, _) in registry.live.values() {
        // SAFETY: a live object. The host writes this field too, but not while it initializes the
        // method (BMI-HOST-ABI.md section 3).
        unsafe { (*object.0.as_ptr()).method_type = method_type };
    }
}

/// The object's name for C; null when there is no such object.
pub fn text(addr: *const bmi_method_addr) -> *const c_char {
    let registry = REGISTRY.lock();
    match registry.live.get(&(addr as usize)) {
        // The string lives on the heap until the object is removed.
        Some((_, address)) => address.text.as_ptr(),
        None => ptr::null(),
    }
}

/// Objects there are.
pub fn count() -> usize {
    REGISTRY.lock().live.len()
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
            endpoint,
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
