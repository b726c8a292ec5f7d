//! The method on real ports. A process has one instance, so the tests take turns; a program of its own, because
//! the simulated ones count what the whole process has.

use parking_lot::{Mutex, MutexGuard};

mod published;
mod races;

/// Held by a test.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock()
}
