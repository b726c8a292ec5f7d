//! A variable of the environment that has another value for a while.
//!
//! ```text
//!   put("MX_DGRAM_FAULTS", "loss=0.01") ... libraries and processes started here see it ... dropped:
//!                                                                        as it was before
//! ```

use std::ffi::OsString;

/// The variable; its value from before comes back when this is dropped.
pub(crate) struct Setting {
    name: &'static str,
    before: Option<OsString>,
}

impl Setting {
    /// Gives the variable a value, or takes it away.
    ///
    /// # Safety
    /// No other thread looks at the environment now, or when this is dropped: the libraries started
    /// before have been finalised, and with them their helper threads.
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
/// No other thread looks at the environment.
unsafe fn set(name: &str, value: Option<OsString>) {
    match value {
        // SAFETY: the caller's promise.
        Some(value) => unsafe { std::env::set_var(name, value) },
        // SAFETY: as above.
        None => unsafe { std::env::remove_var(name) },
    }
}
