//! Memory registrations.
//!
//! ```text
//!   register(start, len) --> desc ----------------> our sends, receives and reads
//!                            key, remote_base ----> the peer's reads
//!
//!   drop or close: the card can no longer access the memory
//! ```
//!
//! Owns: one `fid_mr` each; the keys, if the port chooses them.

use super::endpoint::EpParts;
use super::{Desc, Domain, Ep, FabricError, Handle, Parts, check, opened};
use libfabric_sys::abi::{FI_EINVAL, FI_ENOKEY, FI_KEY_NOTAVAIL, fid_mr};
use libfabric_sys::calls::{fi_mr_bind, fi_mr_desc, fi_mr_enable, fi_mr_key, fi_mr_reg};
use std::fmt;
use std::rc::Rc;

/// Registration of memory with a domain. Dropping it ends the registration; if the provider cannot end it yet, this is
/// logged, and retried when an endpoint or the domain closes.
pub struct Mr {
    /// `None` once closed.
    handle: Option<Handle<fid_mr>>,
    key: u64,
    desc: Desc,
    start: usize,
    virt_addr: bool,
    domain: Rc<Parts>,
    /// Endpoint that the registration is bound to; closes after it.
    _endpoint: Option<Rc<EpParts>>,
}

// SAFETY: as for `Domain`.
unsafe impl Send for Mr {}

impl Domain {
    /// Registers memory for `access` (`FI_SEND | FI_RECV | FI_READ | FI_REMOTE_READ ...`). With the parameter
    /// `mr_endpoint`, `ep` is required, and the registration is bound to it.
    ///
    /// # Safety
    ///
    /// The memory must stay valid until the registration has ended.
    pub unsafe fn register(
        &self,
        start: *mut u8,
        len: usize,
        access: u64,
        ep: Option<&Ep>,
    ) -> Result<Mr, FabricError> {
        let handle = if self.terms.mr_prov_key {
            // SAFETY: guaranteed by the caller.
            unsafe { self.register_with(start, len, access, 0) }
        } else {
            // SAFETY: guaranteed by the caller.
            unsafe { self.register_with_own_key(start, len, access) }
        };
        let handle = handle.map_err(|code| self.error(REGISTER, code))?;
        let endpoint = if self.terms.mr_endpoint {
            let ep = ep.ok_or_else(|| self.error("fi_mr_bind", FI_EINVAL))?;
            // SAFETY: an open registration and an open endpoint of one domain.
            let result = unsafe { fi_mr_bind(handle.as_ptr(), ep.parts.fid(), 0) };
            check(result as isize).map_err(|code| self.error("fi_mr_bind", code))?;
            // SAFETY: a registration that is bound.
            let result = unsafe { fi_mr_enable(handle.as_ptr()) };
            check(result as isize).map_err(|code| self.error("fi_mr_enable", code))?;
            Some(Rc::clone(&ep.parts))
        } else {
            None
        };
        // SAFETY: an open registration; the key is known once it is enabled.
        let key = unsafe { fi_mr_key(handle.as_ptr()) };
        if key == FI_KEY_NOTAVAIL {
            return Err(self.error("fi_mr_key", FI_ENOKEY));
        }
        // SAFETY: an open registration.
        let desc = unsafe { fi_mr_desc(handle.as_ptr()) };
        Ok(Mr {
            handle: Some(handle),
            key,
            desc,
            start: start.addr(),
            virt_addr: self.terms.virt_addr,
            domain: Rc::clone(&self.parts),
            _endpoint: endpoint,
        })
    }

    /// Registers under a key that is currently unused.
    ///
    /// # Safety
    ///
    /// As for [`Domain::register`].
    unsafe fn register_with_own_key(
        &self,
        start: *mut u8,
        len: usize,
        access: u64,
    ) -> Result<Handle<fid_mr>, i32> {
        let mut refused = FI_ENOKEY;
        for _ in 0..KEY_ATTEMPTS {
            let key = self.next_key.get();
            self.next_key.set(key_after(key, self.terms.mr_key_bytes));
            // SAFETY: guaranteed by the caller.
            match unsafe { self.register_with(start, len, access, key) } {
                // The counter has wrapped around to a key in use.
                Err(FI_ENOKEY) => refused = FI_ENOKEY,
                other => return other,
            }
        }
        Err(refused)
    }

    /// # Safety
    ///
    /// As for [`Domain::register`].
    unsafe fn register_with(
        &self,
        start: *mut u8,
        len: usize,
        access: u64,
        key: u64,
    ) -> Result<Handle<fid_mr>, i32> {
        opened("registration", |out| {
            // SAFETY: an open domain and an output; the caller guarantees the memory.
            unsafe {
                fi_mr_reg(
                    self.parts.domain.as_ptr(),
                    start.cast(),
                    len,
                    access,
                    0,
                    key,
                    0,
                    out,
                    std::ptr::null_mut(),
                )
            }
        })
    }
}

impl Mr {
    /// Returns the key that a peer passes to read the memory, together with [`Mr::remote_base`].
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns the local descriptor to pass with sends, receives and reads that use the memory; null if the provider
    /// has none.
    pub fn desc(&self) -> Desc {
        self.desc
    }

    /// Returns the address that a peer passes to read from the byte at `start`, which must lie in the registration: its
    /// virtual address or its offset, whichever the provider uses.
    pub fn remote_base(&self, start: *const u8) -> u64 {
        let address = start.addr();
        if self.virt_addr {
            address as u64
        } else {
            address.wrapping_sub(self.start) as u64
        }
    }

    /// Ends the registration, after which the memory may be freed. On failure, for example if the provider is using it,
    /// returns the registration, which still exists, and the error `FI_E*`, positive: the card may still access the
    /// memory.
    pub fn close(mut self) -> Result<(), (Self, i32)> {
        let Some(handle) = self.handle.take() else {
            return Ok(());
        };
        handle.close().map_err(|(handle, code)| {
            self.handle = Some(handle);
            (self, code)
        })
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // A failed close is retried when an endpoint or the domain closes.
        if let Some(handle) = self.handle.take()
            && let Err(code) = self.domain.close(handle)
        {
            log::warn!("fabric: the registration cannot be closed (error {code})");
        }
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mr({:#x}, key {:#x})", self.start, self.key)
    }
}

/// Returns the next key of at most `bytes` bytes. Never 0, which some providers take for no key.
fn key_after(key: u64, bytes: usize) -> u64 {
    let bits = bytes.clamp(1, 8) as u32 * 8;
    let last = u64::MAX >> (u64::BITS - bits);
    // All ones in 8 bytes is `FI_KEY_NOTAVAIL`.
    if key >= last - 1 { 1 } else { key + 1 }
}

/// Name of the call that registers memory, as [`FabricError::what`] has it after a failed registration.
pub const REGISTER: &str = "fi_mr_reg";

/// Maximum number of used keys skipped in a row; registrations start and end in about the order of their keys.
const KEY_ATTEMPTS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_round_within_their_bytes() {
        assert_eq!(key_after(1, 1), 2);
        assert_eq!(key_after(253, 1), 254);
        assert_eq!(key_after(254, 1), 1);
        assert_eq!(key_after(u64::from(u32::MAX) - 1, 4), 1);
        assert_eq!(key_after(u64::from(u32::MAX), 8), 1 << 32);
        assert_eq!(key_after(u64::MAX - 2, 8), u64::MAX - 1);
        assert_eq!(key_after(u64::MAX - 1, 8), 1);
    }
}
