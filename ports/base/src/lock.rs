//! A mutex and a condition variable that stay usable in a child of `fork`.
//!
//! ```text
//!   std::sync: one word of the process's memory, and the kernel's futexes
//! ```
//!
//! A child has copies of them and none of the threads that waited. Locks that keep their waiters in
//! tables of the process, as `parking_lot`'s, would find dead threads there. A panic does not poison
//! them: the holder of a lock leaves what it protects whole. `make tsan`, which cannot see into the
//! standard library, has `parking_lot`'s all the same, as its tests do not fork.

#[cfg(tsan)]
pub use instrumented::{Condvar, Mutex, MutexGuard};
#[cfg(not(tsan))]
pub use plain::{Condvar, Mutex, MutexGuard};

#[cfg(not(tsan))]
mod plain {
    use std::sync::{self, PoisonError, TryLockError};
    use std::time::Duration;

    /// The right to what a [`Mutex`] protects.
    pub type MutexGuard<'a, T> = sync::MutexGuard<'a, T>;

    /// `std::sync::Mutex` without poison.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// A lock on `value`.
        pub const fn new(value: T) -> Self {
            Self(sync::Mutex::new(value))
        }

        /// Takes the lock.
        #[inline]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Takes the lock if it is free.
        #[inline]
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            }
        }

        /// The value, without the lock.
        pub fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }

        /// The value, which no other thread can reach.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// `std::sync::Condvar` without poison.
    #[derive(Debug, Default)]
    pub struct Condvar(sync::Condvar);

    impl Condvar {
        /// Gives the lock back until it is notified.
        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
        }

        /// Gives the lock back until it is notified, or `span` is over.
        pub fn wait_for<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            span: Duration,
        ) -> MutexGuard<'a, T> {
            let waited = self.0.wait_timeout(guard, span);
            waited.unwrap_or_else(PoisonError::into_inner).0
        }

        /// Wakes one that waits.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }
    }
}

#[cfg(tsan)]
mod instrumented {
    pub use parking_lot::{Mutex, MutexGuard};
    use std::time::Duration;

    /// `parking_lot::Condvar`.
    #[derive(Debug, Default)]
    pub struct Condvar(parking_lot::Condvar);

    impl Condvar {
        /// Gives the lock back until it is notified.
        pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(&mut guard);
            guard
        }

        /// Gives the lock back until it is notified, or `span` is over.
        pub fn wait_for<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            span: Duration,
        ) -> MutexGuard<'a, T> {
            self.0.wait_for(&mut guard, span);
            guard
        }

        /// Wakes one that waits.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }
    }
}
