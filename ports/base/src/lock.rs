//! A mutex and a condition variable that stay usable in a child of `fork`.
//!
//! ```text
//!   one word of the process's memory, and the kernel's futexes (`futex`)
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
    use crate::futex::{Futex, Notified};
    use std::cell::UnsafeCell;
    use std::fmt;
    use std::marker::PhantomData;
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    /// A mutex without poison.
    pub struct Mutex<T> {
        word: Futex,
        value: UnsafeCell<T>,
    }

    // SAFETY: one thread at a time has the value.
    unsafe impl<T: Send> Send for Mutex<T> {}
    // SAFETY: as above.
    unsafe impl<T: Send> Sync for Mutex<T> {}

    /// The right to what a [`Mutex`] protects.
    #[must_use]
    pub struct MutexGuard<'a, T> {
        mutex: &'a Mutex<T>,
        /// Guards stay with their threads.
        not_send: PhantomData<*mut ()>,
    }

    // SAFETY: a shared guard gives the value shared.
    unsafe impl<T: Sync> Sync for MutexGuard<'_, T> {}

    impl<T> Mutex<T> {
        /// A lock on `value`.
        pub const fn new(value: T) -> Self {
            Self {
                word: Futex::new(),
                value: UnsafeCell::new(value),
            }
        }

        /// A guard of the lock, which this thread has.
        #[inline(always)]
        fn held(&self) -> MutexGuard<'_, T> {
            MutexGuard {
                mutex: self,
                not_send: PhantomData,
            }
        }

        /// Takes the lock.
        #[inline]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.word.lock();
            self.held()
        }

        /// Takes the lock if it is free.
        #[inline(always)]
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            // Lazily: the guard would give back what it does not have.
            self.word.try_lock().then(|| self.held())
        }

        /// The value, without the lock.
        pub fn into_inner(self) -> T {
            self.value.into_inner()
        }

        /// The value, which no other thread can reach.
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

    /// A condition variable.
    #[derive(Debug)]
    pub struct Condvar(Notified);

    impl Default for Condvar {
        fn default() -> Self {
            Self(Notified::new())
        }
    }

    impl Condvar {
        /// Gives the lock back until it is notified, or for no reason.
        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(&guard.mutex.word, None);
            guard
        }

        /// Gives the lock back until it is notified, `span` is over, or for no reason.
        pub fn wait_for<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            span: Duration,
        ) -> MutexGuard<'a, T> {
            self.0.wait(&guard.mutex.word, Some(span));
            guard
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
