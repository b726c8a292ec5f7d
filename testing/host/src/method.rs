//! Calls of the method: safe where possible, `unsafe` where memory has to outlive the call.
//!
//! ```text
//!   load --> start --> lookup, post, cancel, test, unexpected --> finalize --> drop_address
//! ```
//!
//! Owns: the calls, and the number of contexts.
//! Out of scope: the host's functions (`abi::set_host`).

use crate::abi::{self, Ops, Unexpected};
use crate::codes;
use crate::library::Library;
use libc::{c_int, c_void};
use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

/// A loaded method. Copies refer to the same method; its functions may be called from any thread.
#[derive(Clone, Copy)]
pub struct Method(&'static Ops);

/// An address object, by its memory address. Invalid once it was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Address(pub usize);

/// Kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Verb {
    /// Expected send.
    Send,
    /// Unexpected send.
    SendUnexpected,
    /// Receive.
    Recv,
}

/// An operation to post.
#[derive(Clone, Copy, Debug)]
pub struct Post {
    /// Kind of the operation.
    pub verb: Verb,
    /// Peer of the operation.
    pub with: Address,
    /// Tag of the message.
    pub tag: i32,
    /// Memory of the message.
    pub memory: Memory,
    /// Buffer type: `PRE_ALLOC` or `EXT_ALLOC`.
    pub kind: c_int,
    /// User pointer for the completion.
    pub user: usize,
    /// Context that reports the completion.
    pub context: i64,
}

/// The memory of an operation.
#[derive(Clone, Copy, Debug)]
pub enum Memory {
    /// A buffer and its length.
    One(*mut u8, usize),
    /// Lists of buffers, as the calls with lists take them.
    List {
        /// Addresses of the buffers.
        starts: *const *mut c_void,
        /// Lengths of the buffers.
        sizes: *const i64,
        /// Number of buffers.
        count: usize,
        /// Sum of the lengths.
        total: i64,
    },
}

/// Outputs of a post, written during the call only.
#[repr(C)]
#[derive(Default)]
pub struct Outputs {
    id: i64,
    actual: i64,
}

/// Result of a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// The operation is under way, with this id.
    Pending(i64),
    /// The operation is complete; for a receive, with its number of bytes.
    Complete(i64),
    /// The operation was rejected with this code.
    Refused(i32),
}

/// An operation that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Id of the operation.
    pub id: i64,
    /// User pointer of its post.
    pub user: usize,
    /// Error of the operation; 0 if there is none.
    pub error: i32,
    /// Size in bytes.
    pub size: i64,
}

/// Arrays that a test call fills in. Kept between calls, like a C program's: clearing them each
/// time would take as long as some measured calls.
pub struct Results {
    ids: [i64; BATCH],
    errors: [i32; BATCH],
    sizes: [i64; BATCH],
    users: [*mut c_void; BATCH],
}

/// An unexpected message. Dropping it frees its buffer.
pub struct Message {
    method: Method,
    info: Unexpected,
}

/// A failed call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    text: String,
    /// Return value of the call.
    pub code: i32,
}

/// Maximum number of operations, or messages, that one call reports.
pub const BATCH: usize = 64;

impl Method {
    /// Loads the library, which stays loaded, and finds its table.
    pub fn load(library: &OsStr) -> Result<Self, String> {
        let table = Library::open(library)?.symbol(c"bmi_mx_ops")?;
        // SAFETY: `bmi_mx_ops` is a constant table with this layout, none of whose entries is NULL,
        // and the library is never unloaded.
        Ok(Self(unsafe { table.cast::<Ops>().as_ref() }))
    }

    /// Returns the method of a table that is linked into this program.
    pub fn of(table: &'static Ops) -> Self {
        Self(table)
    }

    /// Initializes with contexts from 0 to `contexts`, as a server if there is an address to listen
    /// on, which is returned. `settings` override the environment.
    pub fn start(
        self,
        listen: Option<&str>,
        settings: &str,
        contexts: i64,
    ) -> Result<Option<Address>, Failed> {
        let options = c_string(settings)?;
        let options = if settings.is_empty() {
            null()
        } else {
            options.as_ptr()
        };
        let address = listen.map(|name| self.lookup(name)).transpose()?;
        let (at, flags) = match address {
            Some(address) => (address.0 as *mut c_void, abi::INIT_SERVER),
            None => (null_mut(), 0),
        };
        // SAFETY: `at` is NULL or an address of this method; the settings are only read.
        let code = unsafe { (self.0.initialize)(at, 0, flags, options) };
        let name = listen.unwrap_or("client");
        check(code).map_err(|code| Failed::new(&format!("initialize({name})"), code))?;
        for context in 0..contexts {
            // SAFETY: the method is initialised.
            let code = unsafe { (self.0.open_context)(context) };
            check(code).map_err(|code| Failed::new("open_context", code))?;
        }
        Ok(address)
    }

    /// Finalizes. `drop_address` and `name` may still be called afterwards, as OrangeFS does.
    pub fn finalize(self, contexts: i64) -> i32 {
        for context in 0..contexts {
            // SAFETY: opened by `start`.
            unsafe { (self.0.close_context)(context) };
        }
        // SAFETY: takes nothing.
        unsafe { (self.0.finalize)() }
    }

    /// Returns the address of that name.
    pub fn lookup(self, name: &str) -> Result<Address, Failed> {
        let text = c_string(name)?;
        // SAFETY: `text` is a C string.
        let address = unsafe { (self.0.method_addr_lookup)(text.as_ptr()) };
        if address.is_null() {
            return Err(Failed::new(&format!("lookup({name})"), codes::EINVAL));
        }
        Ok(Address(address as usize))
    }

    /// Returns the name of a peer; empty if it has none.
    pub fn name(self, address: Address) -> String {
        // SAFETY: an address of this method that was not dropped.
        let name = unsafe { (self.0.rev_lookup_unexpected)(address.0 as *mut c_void) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: a C string that stays until the address is dropped.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_string_lossy().into_owned()
    }

    /// Drops an address, which must not be used again.
    pub fn drop_address(self, address: Address) {
        // SAFETY: an address of this method, given back once.
        unsafe { (self.0.set_info)(abi::DROP_ADDR, address.0 as *mut c_void) };
    }

    /// Returns whether the library no longer needs an address.
    pub fn may_drop(self, address: Address) -> bool {
        let mut query = abi::DropQuery {
            addr: address.0 as *mut c_void,
            response: 0,
        };
        // SAFETY: the argument this key wants.
        let code = unsafe { (self.0.get_info)(abi::DROP_ADDR_QUERY, (&raw mut query).cast()) };
        code >= 0 && query.response == 1
    }

    /// Allocates memory of the library's for a send; `None` if it has none.
    pub fn lend(self, len: usize) -> Option<*mut u8> {
        // SAFETY: takes numbers.
        let at = unsafe { (self.0.memalloc)(len as i64, abi::SEND) };
        (!at.is_null()).then_some(at.cast())
    }

    /// Frees that memory; returns the library's result.
    ///
    /// # Safety
    /// The memory was allocated with this length and is not used again.
    pub unsafe fn take_back(self, at: *mut u8, len: usize) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { (self.0.memfree)(at.cast(), len as i64, abi::SEND) }
    }

    /// Posts an operation.
    ///
    /// # Safety
    /// As for [`Self::post_with`].
    #[inline]
    pub unsafe fn post(self, post: &Post) -> Posted {
        // SAFETY: the caller's promise; the outputs live as long as the call.
        unsafe { self.post_with(post, &mut Outputs::default()) }
    }

    /// Posts an operation that writes to `outputs` while the call lasts.
    ///
    /// # Safety
    /// The memory stays valid until the operation is over; a send's is not written to, a receive's
    /// is not read through references. `outputs` can be written to.
    #[inline]
    pub unsafe fn post_with(self, post: &Post, outputs: *mut Outputs) -> Posted {
        let ops = self.0;
        let (tag, kind, context, hints) = (post.tag, post.kind, post.context, null_mut());
        let (with, user) = (post.with.0 as *mut c_void, post.user as *mut c_void);
        // SAFETY: the caller's promise.
        let (id, actual) = unsafe { (&raw mut (*outputs).id, &raw mut (*outputs).actual) };
        let code = match (post.memory, post.verb) {
            (Memory::One(at, len), Verb::Recv) => {
                let (at, len) = (at.cast(), len as i64);
                // SAFETY: the caller's promise, and an address of this method.
                unsafe {
                    (ops.post_recv)(id, with, at, len, actual, kind, tag, user, context, hints)
                }
            }
            (Memory::One(at, len), verb) => {
                let call = match verb {
                    Verb::Send => ops.post_send,
                    _ => ops.post_sendunexpected,
                };
                // SAFETY: as above.
                unsafe {
                    call(
                        id,
                        with,
                        at.cast(),
                        len as i64,
                        kind,
                        tag,
                        user,
                        context,
                        hints,
                    )
                }
            }
            (
                Memory::List {
                    starts,
                    sizes,
                    count,
                    total,
                },
                Verb::Recv,
            ) => {
                let n = count as c_int;
                // SAFETY: as above.
                unsafe {
                    (ops.post_recv_list)(
                        id, with, starts, sizes, n, total, actual, kind, tag, user, context, hints,
                    )
                }
            }
            (
                Memory::List {
                    starts,
                    sizes,
                    count,
                    total,
                },
                verb,
            ) => {
                let call = match verb {
                    Verb::Send => ops.post_send_list,
                    _ => ops.post_sendunexpected_list,
                };
                let (starts, n) = (starts.cast(), count as c_int);
                // SAFETY: as above.
                unsafe {
                    call(
                        id, with, starts, sizes, n, total, kind, tag, user, context, hints,
                    )
                }
            }
        };
        match code {
            // SAFETY: as above.
            0 => Posted::Pending(unsafe { id.read() }),
            // SAFETY: as above.
            1 => Posted::Complete(unsafe { actual.read() }),
            code => Posted::Refused(code),
        }
    }

    /// Cancels an operation; returns the library's result.
    pub fn cancel(self, id: i64, context: i64) -> i32 {
        // SAFETY: takes numbers.
        unsafe { (self.0.cancel)(id, context) }
    }

    /// Returns operations of a context that have ended. Without any it sleeps up to `idle_ms`, or
    /// until an unexpected message arrives.
    #[inline]
    pub fn test(
        self,
        context: i64,
        idle_ms: i32,
        results: &mut Results,
    ) -> Result<impl ExactSizeIterator<Item = Done> + use<'_>, Failed> {
        let mut count = 0;
        // SAFETY: every output has room for BATCH.
        let code = unsafe {
            (self.0.testcontext)(
                BATCH as c_int,
                results.ids.as_mut_ptr(),
                &raw mut count,
                results.errors.as_mut_ptr(),
                results.sizes.as_mut_ptr(),
                results.users.as_mut_ptr(),
                idle_ms,
                context,
            )
        };
        let count = counted("testcontext", code, count, BATCH)?;
        Ok((0..count).map(|n| Done {
            id: results.ids[n],
            user: results.users[n] as usize,
            error: results.errors[n],
            size: results.sizes[n],
        }))
    }

    /// Returns up to `most` unexpected messages, at most [`BATCH`]. Without any it sleeps up to
    /// `idle_ms`.
    pub fn unexpected(self, most: usize, idle_ms: i32) -> Result<Vec<Message>, Failed> {
        let mut all = [const { MaybeUninit::<Unexpected>::uninit() }; BATCH];
        let (most, mut count) = (most.min(BATCH), 0);
        let first = all.as_mut_ptr().cast();
        // SAFETY: there is room for `most`.
        let code =
            unsafe { (self.0.testunexpected)(most as c_int, &raw mut count, first, idle_ms) };
        let count = counted("testunexpected", code, count, most)?;
        let message = |info: &MaybeUninit<Unexpected>| Message {
            method: self,
            // SAFETY: the library has filled in `count` of them; each is read once.
            info: unsafe { info.assume_init_read() },
        };
        Ok(all[..count].iter().map(message).collect())
    }
}

impl Message {
    /// Returns the sender.
    pub fn from(&self) -> Address {
        Address(self.info.addr as usize)
    }

    /// Returns the tag.
    pub fn tag(&self) -> i32 {
        self.info.tag
    }

    /// Returns the error; 0 if there is none.
    pub fn error(&self) -> i32 {
        self.info.error_code
    }

    /// Returns the contents.
    pub fn bytes(&self) -> &[u8] {
        let len = usize::try_from(self.info.size).unwrap_or(0);
        if self.info.buffer.is_null() {
            return &[];
        }
        // SAFETY: the method gives out `size` bytes at `buffer`, this program's until given back.
        unsafe { std::slice::from_raw_parts(self.info.buffer.cast(), len) }
    }

    /// Returns the contents as numbers of 64 bits.
    pub fn words(&self) -> Vec<u64> {
        let words = self.bytes().chunks_exact(8);
        words
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect()
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: it came from testunexpected and is not used again.
        unsafe { (self.method.0.unexpected_free)(self.info.buffer) };
    }
}

impl Results {
    /// Allocates the arrays for one call.
    pub fn new() -> Box<Self> {
        Box::new(Self {
            ids: [0; BATCH],
            errors: [0; BATCH],
            sizes: [0; BATCH],
            users: [null_mut(); BATCH],
        })
    }
}

impl Failed {
    fn new(call: &str, code: i32) -> Self {
        Self {
            text: format!("{call}: {}", codes::name(code)),
            code,
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Failed> for String {
    fn from(failed: Failed) -> Self {
        failed.text
    }
}

fn check(code: c_int) -> Result<(), c_int> {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// Checks the number that a test call has reported against the size of the arrays.
#[inline]
fn counted(call: &str, code: c_int, count: c_int, room: usize) -> Result<usize, Failed> {
    check(code).map_err(|code| Failed::new(call, code))?;
    let counted = usize::try_from(count).ok().filter(|n| *n <= room);
    counted.ok_or_else(|| Failed::new(&format!("{call} reports {count}"), codes::EINVAL))
}

fn c_string(text: &str) -> Result<CString, Failed> {
    CString::new(text).map_err(|_| Failed::new(&format!("a NUL in {text:?}"), codes::EINVAL))
}
