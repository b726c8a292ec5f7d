//! The `fid_*` structs that users hold, and the path from them to the state.
//!
//! ```text
//!   *mut fid_ep --> Body { abi: fid_ep, home: Weak<Shared>, id }
//!                                        |                  |
//!                                        v                  v
//!                                  Mutex<State>  .endpoints[id]
//! ```
//!
//! Owns: the memory of every object ever opened, until the last handle of the fabric is dropped: a
//! call on a closed object must be recorded, not crash.
//! Out of scope: the operations of objects.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError, Weak};

use libc::c_int;
use libfabric_sys::abi::*;

use crate::faults::Call;
use crate::state::State;
use crate::tables;

/// Id of an object; never reused in a fabric.
pub(crate) type Id = u32;

/// State shared by all handles and objects.
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
}

impl Shared {
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        // A panic elsewhere has failed its test already; this test may go on.
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Objects as C sees them. All begin with a `fid`.
#[repr(C)]
pub(crate) union Abi {
    fid: fid,
    fabric: fid_fabric,
    domain: fid_domain,
    ep: fid_ep,
    cq: fid_cq,
    av: fid_av,
    mr: fid_mr,
}

/// An object and its fabric.
#[repr(C)]
pub(crate) struct Body {
    abi: Abi,
    home: Weak<Shared>,
    id: Id,
    class: usize,
}

/// A body at a stable address.
pub(crate) struct Owned(*mut Body);

// SAFETY: the pointers in it are constants, the user's own context, and a `Weak` that may be sent.
unsafe impl Send for Owned {}

impl Owned {
    pub(crate) fn pointer(&self) -> *mut c_void {
        self.0.cast()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: came from `Box::into_raw` in `new`, and is dropped once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Makes the body of a new object.
pub(crate) fn new(home: Weak<Shared>, id: Id, class: usize, context: *mut c_void) -> Owned {
    let common = fid {
        fclass: class,
        context,
        ops: tables::common(class),
    };
    let abi = match class {
        FI_CLASS_FABRIC => Abi {
            fabric: fid_fabric {
                fid: common,
                ops: (&raw const tables::FABRIC).cast_mut(),
                api_version: fi_version(1, 17),
            },
        },
        FI_CLASS_DOMAIN => Abi {
            domain: fid_domain {
                fid: common,
                ops: (&raw const tables::DOMAIN).cast_mut(),
                mr: (&raw const tables::MR).cast_mut(),
            },
        },
        FI_CLASS_EP => Abi {
            ep: fid_ep {
                fid: common,
                ops: (&raw const tables::EP).cast_mut(),
                cm: (&raw const tables::CM).cast_mut(),
                msg: (&raw const tables::MSG).cast_mut(),
                rma: (&raw const tables::RMA).cast_mut(),
                tagged: std::ptr::null_mut(),
            },
        },
        FI_CLASS_CQ => Abi {
            cq: fid_cq {
                fid: common,
                ops: (&raw const tables::CQ).cast_mut(),
            },
        },
        FI_CLASS_AV => Abi {
            av: fid_av {
                fid: common,
                ops: (&raw const tables::AV).cast_mut(),
            },
        },
        FI_CLASS_MR => Abi {
            mr: fid_mr {
                fid: common,
                mem_desc: std::ptr::null_mut(),
                key: FI_KEY_NOTAVAIL,
            },
        },
        _ => Abi { fid: common },
    };
    Owned(Box::into_raw(Box::new(Body {
        abi,
        home,
        id,
        class,
    })))
}

/// Returns the id of the object, closed or not.
///
/// # Safety
///
/// Null, or an object of a fake that still exists.
pub(crate) unsafe fn identify(object: *const c_void) -> Option<(Id, usize)> {
    // SAFETY: the caller guarantees it; bodies live as long as their fabric.
    let body = unsafe { object.cast::<Body>().as_ref() }?;
    Some((body.id, body.class))
}

/// Runs a call on an object's state. A closed object is a violation, a dead domain `-FI_ENODEV`.
///
/// # Safety
///
/// Null, or an object of a fake that still exists.
pub(crate) unsafe fn enter(
    object: *const c_void,
    class: usize,
    what: &str,
    f: impl FnOnce(&mut State, Id) -> isize,
) -> isize {
    // SAFETY: the caller guarantees it; bodies live as long as their fabric.
    let Some(body) = (unsafe { object.cast::<Body>().as_ref() }) else {
        return code(FI_EINVAL);
    };
    // Held until the lock is free again: closing the last object drops the fabric's own.
    let Some(home) = body.home.upgrade() else {
        return code(FI_EINVAL);
    };
    let id = body.id;
    home.with(|state| {
        if body.class != class {
            let got = class_name(body.class);
            return state.violated(FI_EINVAL, format!("{what} of a {got}"));
        }
        if !state.is_open(id) {
            let got = class_name(class);
            return state.violated(FI_EBADF, format!("{what} of {got} {id}, which is closed"));
        }
        if what != CLOSE && state.is_dead(id) {
            return code(FI_ENODEV);
        }
        if let Some(error) = Call::named(what).and_then(|call| state.refused(call)) {
            return error;
        }
        f(state, id)
    })
}

/// Call that is allowed on the objects of a dead domain.
const CLOSE: &str = "fi_close";

pub(crate) unsafe extern "C" fn close(object: *mut fid) -> c_int {
    // SAFETY: an object of a fake; so below.
    let class = unsafe { identify(object.cast()) }.map_or(0, |(_, class)| class);
    let close = |state: &mut State, id: Id| {
        let users = state.users(id, class);
        let keeps = state.faults.keeps_domains;
        let silent = keeps && class == FI_CLASS_FABRIC;
        if !users.is_empty() && !silent {
            let (class, users) = (class_name(class), users.join(", "));
            return state.violated(
                FI_EBUSY,
                format!("fi_close of {class} {id} while open: {users}"),
            );
        }
        if keeps && (class == FI_CLASS_DOMAIN || !users.is_empty()) {
            return code(FI_EBUSY);
        }
        match class {
            FI_CLASS_EP => state.end_endpoint(id),
            FI_CLASS_MR if !state.end_region(id) => return code(FI_EBUSY),
            FI_CLASS_MR => {
                // Garbage for callers that continue to use it.
                let mr = object.cast::<fid_mr>();
                // SAFETY: the object of this call; its body outlives it.
                unsafe { (&raw mut (*mr).mem_desc).write(std::ptr::dangling_mut()) };
                // SAFETY: as above.
                unsafe { (&raw mut (*mr).key).write(FI_KEY_NOTAVAIL) };
            }
            _ => {}
        }
        state.closed(id);
        0
    };
    // SAFETY: as above.
    unsafe { enter(object.cast(), class, CLOSE, close) as c_int }
}

/// Returns the error as calls return it.
pub(crate) fn code(error: c_int) -> isize {
    -(error as isize)
}

/// Returns the name of a class of objects.
pub(crate) fn class_name(class: usize) -> &'static str {
    match class {
        FI_CLASS_FABRIC => "fabric",
        FI_CLASS_DOMAIN => "domain",
        FI_CLASS_EP => "endpoint",
        FI_CLASS_CQ => "completion queue",
        FI_CLASS_AV => "address vector",
        FI_CLASS_MR => "registration",
        _ => "object",
    }
}
