//! The lock's word (`ports/base/src/futex.rs`, its own source): one thread at a time has it, and none sleeps for ever.

use crate::futex::Futex;
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;
use std::sync::Arc;

struct Locked {
    word: Futex,
    value: UnsafeCell<u32>,
}

// SAFETY: the value is looked at with the lock only, which is what the models show.
unsafe impl Sync for Locked {}

impl Locked {
    fn add(&self) {
        // SAFETY: this thread has the lock; loom tells if another one has it too.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.word.unlock();
    }
}

fn in_every_order(threads: u32, turns: u32, tries: bool) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let locked = Arc::new(Locked {
            word: Futex::new(),
            value: UnsafeCell::new(0),
        });
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let locked = Arc::clone(&locked);
                thread::spawn(move || {
                    for _ in 0..turns {
                        locked.word.lock();
                        locked.add();
                    }
                })
            })
            .collect();
        let mut added = 0;
        for _ in 0..turns {
            // A front tries, and goes the general way if another thread has the lock.
            if !tries || locked.word.try_lock() {
                if !tries {
                    locked.word.lock();
                }
                locked.add();
                added += 1;
            }
        }
        others.into_iter().for_each(|other| other.join().unwrap());
        locked.word.lock();
        // SAFETY: as above.
        let value = locked.value.with(|value| unsafe { *value });
        assert_eq!(value, added + (threads - 1) * turns);
        locked.word.unlock();
    });
}

#[test]
fn two_threads_have_the_lock_one_after_the_other() {
    in_every_order(2, 2, false);
}

#[test]
fn three_threads_have_the_lock_one_after_the_other() {
    in_every_order(3, 1, false);
}

#[test]
fn who_only_tries_has_the_lock_alone_or_not_at_all() {
    in_every_order(3, 1, true);
}
