//! The server: the library behind its table, answering what asks for an answer.
//!
//! ```text
//!   testunexpected --> tag ANSWER: post_send, 8 bytes back    any other tag: counted
//!   testcontext    --> answers that had to wait
//!   a second thread reads "census" and says what the process uses
//! ```
//!
//! Owns: the loop a file server has, with nothing behind it.
//! Knows nothing of: how many clients there are.

use crate::census::Census;
use crate::{crowd, limits};
use bmi_host::abi::{EXT_ALLOC, INIT_SERVER, Ops, Unexpected};
use bmi_host::codes;
use libc::c_void;
use std::ffi::CString;
use std::io::{self, BufRead, Write};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a request, and of an answer.
pub const SIZE: usize = 8;

/// The tag of a request that wants an answer, which has it, too.
pub const ANSWER: i32 = 1;

/// Descriptors wanted: one a client, and some.
const DESCRIPTORS: u64 = 1 << 20;

const CONTEXT: i64 = 0;
const BATCH: usize = 64;
/// How long a call waits when there is nothing to do.
const IDLE_MS: i32 = 100;
/// The same while answers wait for room.
const BUSY_MS: i32 = 1;

/// The table of the library that is linked into this program.
pub fn linked() -> &'static Ops {
    unsafe extern "C" {
        /// The one of `bmi_mx`, as a C program links it.
        static bmi_mx_ops: Ops;
    }
    // SAFETY: the C interface declares the symbol with this layout; no entry is NULL and nobody
    // writes it.
    unsafe { &bmi_mx_ops }
}

/// Serves at `address`, says `ready on ADDRESS` on standard output, and ends with its standard
/// input. Fails when the address is taken.
pub fn serve(ops: &'static Ops, address: &str) -> Result<(), String> {
    crowd::end_with_parent();
    limits::raise_descriptors(DESCRIPTORS);
    let name = CString::new(address).map_err(|_| "a NUL in the address")?;
    // SAFETY: `name` is a C string.
    let listen = unsafe { (ops.method_addr_lookup)(name.as_ptr()) };
    // SAFETY: `listen` is NULL, which is refused, or an address of this method.
    check("initialize", unsafe {
        (ops.initialize)(listen, 0, INIT_SERVER, c"".as_ptr())
    })?;
    // SAFETY: the method is initialised.
    check("open_context", unsafe { (ops.open_context)(CONTEXT) })?;
    let requests = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&requests);
    std::thread::spawn(move || tell(&counted));
    println!("ready on {address}");
    io::stdout().flush().map_err(|why| why.to_string())?;
    answer(ops, &requests)
}

/// Answers questions until there are no more, then ends the process.
fn tell(requests: &AtomicU64) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if line.trim() == "census" {
            println!("{}", Census::take(requests.load(Ordering::Acquire)));
            let _ = io::stdout().flush();
        }
    }
    // In the middle of whatever the other thread does, as a server that is killed.
    std::process::exit(0);
}

fn answer(ops: &Ops, requests: &AtomicU64) -> Result<(), String> {
    static REPLY: [u8; SIZE] = [1; SIZE];
    let mut waiting = 0;
    let mut arrived = [const { NOTHING }; BATCH];
    loop {
        let idle = if waiting > 0 { 0 } else { IDLE_MS };
        let mut count = 0;
        let room = arrived.as_mut_ptr();
        // SAFETY: `arrived` has room for BATCH.
        let code = unsafe { (ops.testunexpected)(BATCH as i32, &mut count, room, idle) };
        check("testunexpected", code)?;
        // Before they are answered: whoever has its answer finds it counted.
        requests.fetch_add(count as u64, Ordering::Release);
        for message in &arrived[..usize::try_from(count).unwrap_or(0)] {
            if message.tag == ANSWER {
                let (to, bytes) = (message.addr, REPLY.as_ptr().cast());
                let (size, tag) = (SIZE as i64, ANSWER);
                let mut id = 0;
                // SAFETY: the bytes are never freed and never written; the address is the host's
                // until it drops it, which this one never does.
                let code = unsafe {
                    (ops.post_send)(
                        &mut id,
                        to,
                        bytes,
                        size,
                        EXT_ALLOC,
                        tag,
                        null_mut(),
                        CONTEXT,
                        null_mut(),
                    )
                };
                // A client that has gone meanwhile wants no answer.
                waiting += usize::from(code == 0);
            }
            // SAFETY: handed out with the message and not used again.
            unsafe { (ops.unexpected_free)(message.buffer) };
        }
        if waiting > 0 {
            waiting -= ended(ops, if count == 0 { BUSY_MS } else { 0 })?.min(waiting);
        }
    }
}

/// Answers that have ended, well or not.
fn ended(ops: &Ops, idle_ms: i32) -> Result<usize, String> {
    let (mut ids, mut errors) = ([0; BATCH], [0; BATCH]);
    let (mut sizes, mut users) = ([0; BATCH], [null_mut::<c_void>(); BATCH]);
    let mut count = 0;
    // SAFETY: every output has room for BATCH.
    let code = unsafe {
        (ops.testcontext)(
            BATCH as i32,
            ids.as_mut_ptr(),
            &mut count,
            errors.as_mut_ptr(),
            sizes.as_mut_ptr(),
            users.as_mut_ptr(),
            idle_ms,
            CONTEXT,
        )
    };
    check("testcontext", code)?;
    Ok(usize::try_from(count).unwrap_or(0))
}

const NOTHING: Unexpected = Unexpected {
    error_code: 0,
    addr: null_mut(),
    buffer: null_mut(),
    size: 0,
    tag: 0,
};

fn check(call: &str, code: i32) -> Result<(), String> {
    match code {
        0.. => Ok(()),
        _ => Err(format!("{call}: {}", codes::name(code))),
    }
}
