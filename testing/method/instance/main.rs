//! The method on real ports. A process has one instance, so the tests take turns. They form a
//! program of their own, because the simulated tests count resources of the whole process.

use parking_lot::{Mutex, MutexGuard};

mod published;
mod races;
mod test_calls;

/// Lock held by the running test.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock()
}
