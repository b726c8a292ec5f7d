//! Loom's locks with `parking_lot`'s methods.

use loom::sync as loom_sync;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// `parking_lot::Mutex`.
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

/// `parking_lot::MutexGuard`. `None` while its thread sleeps.
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

/// `parking_lot::Condvar`.
pub struct Condvar(loom_sync::Condvar);

impl Condvar {
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().unwrap();
        guard.0 = Some(self.0.wait(held).unwrap());
    }

    pub fn wait_for<T>(&self, _guard: &mut MutexGuard<'_, T>, _span: Duration) -> bool {
        unreachable!("waiters of the models wait without a time-out");
    }

    pub fn notify_one(&self) -> bool {
        self.0.notify_one();
        true
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
