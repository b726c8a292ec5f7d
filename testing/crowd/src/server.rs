//! The server: the library behind its table, answering requests that want an answer.
//!
//! ```text
//!   testunexpected --> tag ANSWER: post_send, 8 bytes back    any other tag: counted
//!   testcontext    --> answers that were pending
//!   a second thread reads `Order::Census` and reports the process's resources
//! ```
//!
//! Owns: the loop of a file server, without files.

use crate::census::Census;
use crate::orders::{self, Order};
use crate::{crowd, limits};
use bmi_host::abi::EXT_ALLOC;
use bmi_host::method::{BATCH, Memory, Method, Post, Posted, Results, Verb};
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a request, and of an answer.
pub const SIZE: usize = 8;

/// Tag of a request that wants an answer, and of the answer.
pub const ANSWER: i32 = 1;

/// Wanted limit of descriptors: one per client, and some more.
const DESCRIPTORS: u64 = 1 << 20;

const CONTEXT: i64 = 0;
/// Idle time of a test call in milliseconds, with nothing to do.
const IDLE_MS: i32 = 100;
/// Idle time of a test call in milliseconds, while answers are pending.
const BUSY_MS: i32 = 1;

/// Serves at `address`, prints `ready on ADDRESS`, and ends with its standard input. Fails if the
/// address is in use.
pub fn serve(method: Method, address: &str) -> Result<(), String> {
    crowd::end_with_parent();
    limits::raise_descriptors(DESCRIPTORS);
    method.start(Some(address), "", CONTEXT + 1)?;
    let requests = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&requests);
    std::thread::spawn(move || tell(&counted));
    println!("ready on {address}");
    io::stdout().flush().map_err(|why| why.to_string())?;
    answer(method, &requests)
}

/// Answers questions until there are no more, then ends the process.
fn tell(requests: &AtomicU64) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if let Ok(Order::Census) = orders::parse(&line) {
            println!(
                "{}",
                orders::text(&Census::take(requests.load(Ordering::Acquire)))
            );
            let _ = io::stdout().flush();
        }
    }
    // Whatever the other thread does at the moment, as when a server is killed.
    std::process::exit(0);
}

fn answer(method: Method, requests: &AtomicU64) -> Result<(), String> {
    static REPLY: [u8; SIZE] = [1; SIZE];
    let mut waiting = 0;
    let mut results = Results::new();
    loop {
        let idle = if waiting > 0 { 0 } else { IDLE_MS };
        let messages = method.unexpected(BATCH, idle)?;
        // Counted before they are answered: a client that has its answer finds it counted.
        requests.fetch_add(messages.len() as u64, Ordering::Release);
        for message in messages.iter().filter(|message| message.tag() == ANSWER) {
            let reply = Post {
                verb: Verb::Send,
                with: message.from(),
                tag: ANSWER,
                memory: Memory::One(REPLY.as_ptr().cast_mut(), SIZE),
                kind: EXT_ALLOC,
                user: 0,
                context: CONTEXT,
            };
            // SAFETY: the bytes are never freed and a send does not write them; the address is the
            // host's until it drops it, which this one never does.
            let posted = unsafe { method.post(&reply) };
            // A client that has left meanwhile gets no answer.
            waiting += usize::from(matches!(posted, Posted::Pending(_)));
        }
        if waiting > 0 {
            let idle = if messages.is_empty() { BUSY_MS } else { 0 };
            waiting -= method.test(CONTEXT, idle, &mut results)?.len().min(waiting);
        }
    }
}
