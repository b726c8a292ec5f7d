//! An environment variable with another value for a while.
//!
//! ```text
//!   put("MX_DGRAM_FAULTS", "loss=0.01") ... libraries and processes started now see it ... dropped:
//!                                                                               the old value
//! ```

use std::ffi::OsString;

/// Sets a variable until it is dropped.
pub(crate) struct Setting {
    name: &'static str,
    before: Option<OsString>,
}

impl Setting {
    /// Sets or removes the variable.
    ///
    /// # Safety
    /// No other thread reads the environment now, or when this is dropped: libraries started before
    /// have been finalised, and with them their helper threads.
    pub(crate) unsafe fn put(name: &'static str, value: Option<&str>) -> Self {
        let before = std::env::var_os(name);
        // SAFETY: the caller's promise.
        unsafe { set(name, value.map(OsString::from)) };
        Self { name, before }
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        // SAFETY: what `put` was promised.
        unsafe { set(self.name, self.before.take()) };
    }
}

/// # Safety
/// No other thread reads the environment.
unsafe fn set(name: &str, value: Option<OsString>) {
    match value {
        // SAFETY: the caller's promise.
        Some(value) => unsafe { std::env::set_var(name, value) },
        // SAFETY: as above.
        None => unsafe { std::env::remove_var(name) },
    }
}
