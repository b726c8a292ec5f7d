//! Memory barrier between publishing a packet and checking whether the other side sleeps.
//!
//! ```text
//!   producer                         consumer, about to sleep
//!   store packet                     store sleeping = 1
//!   ---- barrier ----                ---- barrier ----
//!   load sleeping                    load next packet
//! ```
//!
//! Without a barrier on both sides each could miss the other's store, and the consumer would sleep forever. A fence in
//! the producer costs each packet the transfer time of its cache line. The kernel can instead execute the producer's
//! barrier when the consumer goes to sleep (`membarrier`, global expedited): then only sleepers pay. The producer must
//! be registered and the consumer permitted; the handshake exchanges whether a side is both.
//!
//! Owns: this process's registration.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// Returns true if this process is registered for the kernel's barriers and can request them.
pub(super) fn is_asymmetric() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| register(membarrier))
}

/// Registers this process with `call`, which is [`membarrier`]; -1 if the kernel has no such call or refuses it.
fn register(call: impl Fn(i32) -> i64) -> bool {
    let wanted = GLOBAL_EXPEDITED | REGISTER_GLOBAL_EXPEDITED;
    let known = call(QUERY);
    known >= 0
        && known & wanted == wanted
        && call(REGISTER_GLOBAL_EXPEDITED as i32) == 0
        && call(GLOBAL_EXPEDITED as i32) == 0
}

/// Executes the sleeper's barrier, between its stores before and its loads after.
pub(super) fn heavy() {
    if is_asymmetric() {
        membarrier(GLOBAL_EXPEDITED as i32);
    }
    fence(Ordering::SeqCst);
}

/// Executes the producer's barrier; `asymmetric` if both sides of the link are.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::hint::black_box;
    use std::sync::atomic::AtomicU32;
    use std::time::{Duration, Instant};

    #[test]
    fn kernel_without_membarrier_commands_is_not_asymmetric() {
        let all = GLOBAL_EXPEDITED | REGISTER_GLOBAL_EXPEDITED;
        let asked = Cell::new(0);
        let kernel = |known: i64, refused: i64| {
            asked.set(0);
            register(|command| {
                asked.set(asked.get() + 1);
                match i64::from(command) {
                    0 => known,
                    command if command == refused => -1,
                    _ => 0,
                }
            })
        };
        assert!(kernel(all, 0));
        assert!(!kernel(-1, 0) && asked.get() == 1);
        for known in [0, GLOBAL_EXPEDITED, REGISTER_GLOBAL_EXPEDITED] {
            assert!(!kernel(known, 0) && asked.get() == 1);
        }
        for refused in [GLOBAL_EXPEDITED, REGISTER_GLOBAL_EXPEDITED] {
            assert!(!kernel(all, refused));
        }
    }

    /// Lets two threads repeatedly store and then look for the other's store. Returns how often both missed it.
    fn both_missed(first: impl Fn() + Sync, second: impl Fn() + Sync) -> usize {
        let meeting = Meeting::default();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| meeting.looks(1, &second));
            let looks = meeting.looks(0, &first);
            let others = other.join().unwrap();
            assert_eq!(looks.len(), others.len());
            let neither = |(round, seen): &(u32, (u32, u32))| seen.0 < *round && seen.1 < *round;
            (1..)
                .zip(looks.into_iter().zip(others))
                .filter(neither)
                .count()
        })
    }

    /// Separate cache lines, as for the words of a ring.
    #[derive(Default)]
    #[repr(align(128))]
    struct Word(AtomicU32);

    #[derive(Default)]
    struct Meeting {
        stored: [Word; 2],
        came: Word,
        /// First round that is not played.
        over: Word,
    }

    impl Meeting {
        /// Returns the words that side `me` saw, by round.
        fn looks(&self, me: usize, barrier: &impl Fn()) -> Vec<u32> {
            let mut seen = Vec::with_capacity(ROUNDS);
            let begin = Instant::now();
            for round in 1.. {
                if me == 0 && (seen.len() == ROUNDS || begin.elapsed() > LONGEST) {
                    self.over.0.store(round, Ordering::Relaxed);
                }
                // Both continue within few cycles of each other if each has a processor.
                self.came.0.fetch_add(1, Ordering::AcqRel);
                let mut turns = 0;
                while self.came.0.load(Ordering::Acquire) < 2 * round {
                    turns += 1;
                    if turns % 1000 == 0 {
                        std::thread::yield_now();
                    }
                }
                if self.over.0.load(Ordering::Relaxed) == round {
                    break;
                }
                // Vary which side is ahead.
                for turn in 0..round % [64, 49][me] {
                    black_box(turn);
                }
                self.stored[me].0.store(round, Ordering::Relaxed);
                barrier();
                seen.push(self.stored[1 - me].0.load(Ordering::Relaxed));
            }
            seen
        }
    }

    /// A compiler fence in its place would fail this test on x86, too.
    #[test]
    fn without_the_kernel_the_light_barrier_is_a_full_fence() {
        assert_eq!(both_missed(|| light(false), || light(false)), 0);
        assert_eq!(both_missed(|| light(false), heavy), 0);
    }

    #[test]
    fn with_the_kernel_the_heavy_one_is_one_for_both() {
        let asymmetric = is_asymmetric();
        assert_eq!(both_missed(|| light(asymmetric), heavy), 0);
    }

    const ROUNDS: usize = 100_000;
    const LONGEST: Duration = Duration::from_millis(500);
}
