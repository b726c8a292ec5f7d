//! Single operations: posted, called off, and what became of each.
//!
//! ```text
//!   post ---> Pending(id) ---> completions ---> Done { user, error }
//!        |--> Complete               ^
//!        `--> Refused(code)          `--- cancel(id)
//! ```
//!
//! Owns: the C calls that `Messages` has no need of.
//! Knows nothing of: what is measured.

use crate::abi;
use crate::bmi::{Bmi, CONTEXT, Remote};
use libc::c_void;
use std::ffi::OsStr;
use std::ptr::null_mut;
use std::sync::Mutex;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Recv,
    Send,
    SendUnexpected,
}

/// Where a message is, or is to go.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) base: *mut u8,
    pub(crate) len: usize,
    /// More than one: posted as a list.
    pub(crate) pieces: usize,
}

/// What a post returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Posted {
    Pending(i64),
    Complete,
    Refused(i32),
}

/// The end of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) user: usize,
    pub(crate) error: i32,
}

/// A message nobody had posted a receive for.
pub(crate) struct Arrival {
    pub(crate) from: Remote,
    pub(crate) tag: i32,
    pub(crate) words: Vec<u64>,
}

impl Bmi {
    /// Posts an operation.
    ///
    /// # Safety
    /// `place` stays valid until the operation has been reported; a receive's is not looked at
    /// through references.
    pub(crate) unsafe fn post(
        &self,
        verb: Verb,
        to: Remote,
        tag: i32,
        place: Place,
        user: usize,
    ) -> Posted {
        let (mut id, mut actual) = (0, 0);
        let user = user as *mut c_void;
        let Place { base, len, pieces } = place;
        let (Remote(to), size, kind) = (to, len as i64, abi::EXT_ALLOC);
        let data: *mut c_void = base.cast();
        let none = null_mut();
        let code = if pieces <= 1 {
            let send = match verb {
                Verb::Send => self.ops.post_send,
                Verb::SendUnexpected | Verb::Recv => self.ops.post_sendunexpected,
            };
            match verb {
                // SAFETY: the caller's promise; the outputs live as long as the call.
                Verb::Recv => unsafe {
                    let recv = self.ops.post_recv;
                    recv(
                        &mut id,
                        to,
                        data,
                        size,
                        &mut actual,
                        kind,
                        tag,
                        user,
                        CONTEXT,
                        none,
                    )
                },
                // SAFETY: as above.
                Verb::Send | Verb::SendUnexpected => unsafe {
                    send(&mut id, to, data, size, kind, tag, user, CONTEXT, none)
                },
            }
        } else {
            let cut = |n: usize| len * n / pieces;
            let sizes: Vec<i64> = (0..pieces).map(|n| (cut(n + 1) - cut(n)) as i64).collect();
            let bases: Vec<*mut c_void> = (0..pieces)
                .map(|n| base.wrapping_add(cut(n)).cast())
                .collect();
            let count = pieces as i32;
            let (bases, sizes) = (bases.as_ptr(), sizes.as_ptr());
            let send = match verb {
                Verb::Send => self.ops.post_send_list,
                Verb::SendUnexpected | Verb::Recv => self.ops.post_sendunexpected_list,
            };
            match verb {
                // SAFETY: as above; the lists live as long as the call, which is long enough.
                Verb::Recv => unsafe {
                    let recv = self.ops.post_recv_list;
                    recv(
                        &mut id,
                        to,
                        bases,
                        sizes,
                        count,
                        size,
                        &mut actual,
                        kind,
                        tag,
                        user,
                        CONTEXT,
                        none,
                    )
                },
                // SAFETY: as above.
                Verb::Send | Verb::SendUnexpected => unsafe {
                    let bases = bases.cast();
                    send(
                        &mut id, to, bases, sizes, count, size, kind, tag, user, CONTEXT, none,
                    )
                },
            }
        };
        match code {
            0 => Posted::Pending(id),
            1 => Posted::Complete,
            code => Posted::Refused(code),
        }
    }

    /// Calls an operation off.
    pub(crate) fn cancel(&self, id: i64) -> i32 {
        // SAFETY: takes numbers.
        unsafe { (self.ops.cancel)(id, CONTEXT) }
    }

    /// Appends what has ended. Sleeps up to `idle_ms` when nothing has, or until an unexpected
    /// message arrives.
    pub(crate) fn completions(&self, idle_ms: i32, out: &mut Vec<Done>) -> Result<(), String> {
        let results = &mut **self.results.borrow_mut();
        let count = self.ended(results, idle_ms)?;
        let ends = results.users.iter().zip(&results.errors);
        out.extend(ends.take(count).map(|(user, error)| Done {
            user: *user as usize,
            error: *error,
        }));
        Ok(())
    }

    /// The next unexpected message, if one is there. Its first words: nobody here sends more that
    /// is looked at.
    pub(crate) fn arrival(&self) -> Result<Option<Arrival>, String> {
        const WORDS_MAX: usize = 1024;
        let mut info = abi::Unexpected {
            error_code: 0,
            addr: null_mut(),
            buffer: null_mut(),
            size: 0,
            tag: 0,
        };
        let mut count = 0;
        // SAFETY: both outputs have room for one.
        let rc = unsafe { (self.ops.testunexpected)(1, &mut count, &mut info, 0) };
        if rc < 0 {
            return Err(format!("testunexpected: {}", bmi_host::codes::name(rc)));
        }
        if count == 0 {
            return Ok(None);
        }
        let len = usize::try_from(info.size).unwrap_or(0).min(8 * WORDS_MAX);
        let bytes: &[u8] = match info.buffer.is_null() {
            true => &[],
            // SAFETY: the method gives out `size` bytes at `buffer`, which are this program's now.
            false => unsafe { std::slice::from_raw_parts(info.buffer.cast(), len) },
        };
        let words = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect();
        // SAFETY: `buffer` came from testunexpected and is not used again.
        unsafe { (self.ops.unexpected_free)(info.buffer) };
        Ok(Some(Arrival {
            from: Remote(info.addr),
            tag: info.tag,
            words,
        }))
    }

    /// Gives the address of a dead peer back, if the method has no more use for it.
    pub(crate) fn drop_dead(&self, peer: Remote) -> bool {
        let mut query = abi::DropQuery {
            addr: peer.0,
            response: 0,
        };
        let asked: *mut abi::DropQuery = &mut query;
        // SAFETY: the argument this key wants.
        let rc = unsafe { (self.ops.get_info)(abi::DROP_ADDR_QUERY, asked.cast()) };
        if rc < 0 || query.response != 1 {
            return false;
        }
        self.drop_address(peer);
        true
    }

    /// Gives an address back; it must not be used again.
    pub(crate) fn drop_address(&self, peer: Remote) {
        // SAFETY: an address of this method, given back once.
        unsafe { (self.ops.set_info)(abi::DROP_ADDR, peer.0) };
    }
}

/// Peers the library has said are dead, by the names `register` gave them.
static FORGOTTEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// How many peers the library has told us of.
static KNOWN: Mutex<usize> = Mutex::new(0);

/// What a host does beside messages: it has an address for every peer, until that is dead. To be
/// called before the method is started.
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
pub(crate) fn forgotten() -> Vec<Remote> {
    let Ok(mut list) = FORGOTTEN.lock() else {
        return Vec::new();
    };
    list.drain(..)
        .map(|name| Remote(name as *mut c_void))
        .collect()
}

/// How many peers have been made known.
pub(crate) fn introduced() -> usize {
    KNOWN.lock().map_or(0, |count| *count)
}

unsafe extern "C" fn register(addr: *mut c_void) -> i64 {
    if let Ok(mut count) = KNOWN.lock() {
        *count += 1;
    }
    addr as i64
}

unsafe extern "C" fn forget(name: i64) -> i32 {
    if let Ok(mut list) = FORGOTTEN.lock() {
        list.push(name as usize);
    }
    0
}
