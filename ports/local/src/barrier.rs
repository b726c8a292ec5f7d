//! The memory barrier between publishing a packet and checking whether the other side sleeps.
//!
//! ```text
//!   producer                         consumer, about to sleep
//!   store packet                     store sleeping = 1
//!   ---- barrier ----                ---- barrier ----
//!   load sleeping                    load next packet
//! ```
//!
//! Without a barrier on both sides each could miss the other's store, and the consumer would sleep
//! for ever. A fence in the producer costs every packet the time its cache line takes to travel.
//! The kernel can instead execute the producer's half for it when the consumer goes to sleep
//! (`membarrier`, global expedited): then only sleepers pay. It needs a registered producer and a
//! consumer with permission; the handshake says whether a side has both.
//!
//! Owns: this process's registration.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// True when this process has registered for the kernel's barriers and can ask for them.
pub(super) fn is_asymmetric() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        let wanted = GLOBAL_EXPEDITED | REGISTER_GLOBAL_EXPEDITED;
        membarrier(QUERY) & wanted == wanted
            && membarrier(REGISTER_GLOBAL_EXPEDITED as i32) == 0
            && membarrier(GLOBAL_EXPEDITED as i32) == 0
    })
}

/// The sleeper's half. Between its stores before and its loads after.
pub(super) fn heavy() {
    if is_asymmetric() {
        membarrier(GLOBAL_EXPEDITED as i32);
    }
    fence(Ordering::SeqCst);
}

/// The producer's half; `asymmetric` when both sides of the link are.
#[inline(always)]
pub(super) fn light(asymmetric: bool) {
    if asymmetric {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

fn membarrier(command: i32) -> i64 {
    // SAFETY: the call takes two plain integers and touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0) }
}

const QUERY: i32 = 0;
const GLOBAL_EXPEDITED: i64 = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: i64 = 1 << 2;
