//! A mutex and a condition variable that stay usable in a child of `fork`.
//!
//! ```text
//!   one futex word in the process's memory (`futex`)
//! ```
//!
//! A child has copies of both and none of the waiting threads. Locks with process-wide tables of waiters, such as
//! `parking_lot`'s, would find threads there that no longer exist. A panic does not poison a lock: its holder leaves
//! the value consistent. `make tsan` uses `parking_lot` instead; its tests do not fork.

#[cfg(tsan)]
pub use instrumented::{Condvar, Mutex, MutexGuard};
#[cfg(not(tsan))]
pub use plain::{Condvar, Mutex, MutexGuard};

#[cfg(not(tsan))]
mod plain {
    use crate::futex::{Futex, Notified};
    use std::cell::UnsafeCell;
    use std::fmt;
    use std::marker::PhantomData;
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    /// Mutex of one futex word, without poisoning and without tables of waiters that a child of `fork` would inherit.
    pub struct Mutex<T> {
        word: Futex,
        value: UnsafeCell<T>,
    }

    // SAFETY: one thread at a time has the value.
    unsafe impl<T: Send> Send for Mutex<T> {}
    // SAFETY: as above.
    unsafe impl<T: Send> Sync for Mutex<T> {}

    /// Exclusive access to the value of a locked [`Mutex`]; dropping it releases the lock.
    #[must_use]
    pub struct MutexGuard<'a, T> {
        mutex: &'a Mutex<T>,
        /// Keeps guards on their threads.
        not_send: PhantomData<*mut ()>,
    }

    // SAFETY: a shared guard gives the value shared.
    unsafe impl<T: Sync> Sync for MutexGuard<'_, T> {}

    impl<T> Mutex<T> {
        /// Creates an unlocked mutex.
        pub const fn new(value: T) -> Self {
            Self {
                word: Futex::new(),
                value: UnsafeCell::new(value),
            }
        }

        /// Returns a guard; this thread must hold the lock.
        #[inline(always)]
        fn held(&self) -> MutexGuard<'_, T> {
            MutexGuard {
                mutex: self,
                not_send: PhantomData,
            }
        }

        /// Acquires the lock, waiting for it if necessary.
        #[inline]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.word.lock();
            self.held()
        }

        /// Acquires the lock if it is free; otherwise returns `None` at once.
        #[inline(always)]
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            // `then`, not `then_some`: dropping an unused guard would release a lock that this thread does not hold.
            self.word.try_lock().then(|| self.held())
        }

        /// Consumes the mutex and returns its value.
        pub fn into_inner(self) -> T {
            self.value.into_inner()
        }

        /// Returns the value without locking: through an exclusive reference no other thread can reach it.
        pub fn get_mut(&mut self) -> &mut T {
            self.value.get_mut()
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    impl<T> fmt::Debug for Mutex<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Mutex").finish_non_exhaustive()
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        #[inline(always)]
        fn deref(&self) -> &T {
            // SAFETY: this thread has the lock.
            unsafe { &*self.mutex.value.get() }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        #[inline(always)]
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: this thread has the lock.
            unsafe { &mut *self.mutex.value.get() }
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        #[inline(always)]
        fn drop(&mut self) {
            self.mutex.word.unlock();
        }
    }

    /// Condition variable for the mutex of this module.
    #[derive(Debug)]
    pub struct Condvar(Notified);

    impl Default for Condvar {
        fn default() -> Self {
            Self(Notified::new())
        }
    }

    impl Condvar {
        /// Releases the lock until notified, and reacquires it. Spurious wake-ups are possible.
        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(&guard.mutex.word, None);
            guard
        }

        /// Releases the lock until notified, for `span` at most, and reacquires it. Spurious wake-ups are possible.
        pub fn wait_for<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            span: Duration,
        ) -> MutexGuard<'a, T> {
            self.0.wait(&guard.mutex.word, Some(span));
            guard
        }

        /// Wakes one waiting thread.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }
    }
}

#[cfg(tsan)]
mod instrumented {
    pub use parking_lot::{Mutex, MutexGuard};
    use std::time::Duration;

    /// Wrapper of `parking_lot::Condvar` with the interface of the plain one.
    #[derive(Debug, Default)]
    pub struct Condvar(parking_lot::Condvar);

    impl Condvar {
        /// Releases the lock until notified, and reacquires it.
        pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(&mut guard);
            guard
        }

        /// Releases the lock until notified, for `span` at most, and reacquires it.
        pub fn wait_for<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            span: Duration,
        ) -> MutexGuard<'a, T> {
            self.0.wait_for(&mut guard, span);
            guard
        }

        /// Wakes one waiting thread.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }
    }
}
