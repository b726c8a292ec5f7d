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
    *REGISTERED.get_or_init(|| register(membarrier))
}

/// `call`: [`membarrier`]. -1 is its error: the kernel has no such call, or refuses it.
fn register(call: impl Fn(i32) -> i64) -> bool {
    let wanted = GLOBAL_EXPEDITED | REGISTER_GLOBAL_EXPEDITED;
    let known = call(QUERY);
    known >= 0
        && known & wanted == wanted
        && call(REGISTER_GLOBAL_EXPEDITED as i32) == 0
        && call(GLOBAL_EXPEDITED as i32) == 0
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

    /// Each of two threads stores and then looks for the other's store, again and again for a while. How often
    /// neither saw it.
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

    /// In cache lines of their own, as the words of a ring are.
    #[derive(Default)]
    #[repr(align(128))]
    struct Word(AtomicU32);

    #[derive(Default)]
    struct Meeting {
        stored: [Word; 2],
        came: Word,
        /// The round that is not played.
        over: Word,
    }

    impl Meeting {
        /// The words that side `me` saw, round by round.
        fn looks(&self, me: usize, barrier: &impl Fn()) -> Vec<u32> {
            let mut seen = Vec::with_capacity(ROUNDS);
            let begin = Instant::now();
            for round in 1.. {
                if me == 0 && (seen.len() == ROUNDS || begin.elapsed() > LONGEST) {
                    self.over.0.store(round, Ordering::Relaxed);
                }
                // Both go on within few cycles of each other, where each has a processor.
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
                // Sometimes the one is a little ahead, sometimes the other.
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

    /// A fence of the compiler's in its place is found out on x86, too.
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
