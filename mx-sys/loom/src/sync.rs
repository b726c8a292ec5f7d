//! Loom's locks with the methods of `ports/base`'s.

use loom::sync as loom_sync;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// The mutex.
pub struct Mutex<T>(loom_sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom_sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap()))
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        Some(MutexGuard(Some(self.0.try_lock().ok()?)))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap()
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

/// The right to what a [`Mutex`] protects. `None` while its thread sleeps.
pub struct MutexGuard<'a, T>(Option<loom_sync::MutexGuard<'a, T>>);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().unwrap()
    }
}

/// The condition variable.
pub struct Condvar(loom_sync::Condvar);

impl Condvar {
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let held = guard.0.take().unwrap();
        MutexGuard(Some(self.0.wait(held).unwrap()))
    }

    pub fn wait_for<'a, T>(
        &self,
        _guard: MutexGuard<'a, T>,
        _span: Duration,
    ) -> MutexGuard<'a, T> {
        unreachable!("waiters of the models wait without a time-out");
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self(loom_sync::Condvar::new())
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}
