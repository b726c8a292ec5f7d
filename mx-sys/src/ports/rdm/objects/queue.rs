//! The completion queue, and the address vector next to it.
//!
//! ```text
//!   fi_cq_read    n           n x Done
//!                 -EAGAIN     nothing
//!                 -EAVAIL --> fi_cq_readerr --> Failed, until there is none
//!                 other       the queue is broken
//!
//!   insert(address) -> fi_addr_t -> remove
//! ```
//!
//! Owns: what counts as a completion, and what as the end of the queue.
//! Knows nothing of: whose completions they are.

use super::{Domain, FabricError, Handle, opened, positive, try_wait};
use crate::ports::rdm::plan::Plan;
use libc::c_void;
use libfabric_sys::abi::{
    FI_ADDR_NOTAVAIL, FI_ADDR_STR, FI_CQ_FORMAT_TAGGED, FI_EAGAIN, FI_EAVAIL, FI_EINTR, FI_EINVAL,
    FI_EOTHER, FI_EOVERRUN, FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_WAIT_FD, FI_WAIT_NONE,
    FI_WAIT_UNSPEC, fi_cq_attr, fi_cq_err_entry, fi_cq_tagged_entry, fi_wait_obj, fid_cq,
    fid_domain, fid_fabric,
};
use libfabric_sys::calls::{
    fi_av_insert, fi_av_remove, fi_cq_open, fi_cq_read, fi_cq_readerr, fi_cq_strerror, fi_getwait,
};
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

/// The end of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::ports::rdm) enum CqEvent {
    /// It was done.
    Done {
        /// The operation's context.
        context: *mut c_void,
        /// Which kind it was, and `FI_MULTI_RECV` when the buffer is given back.
        flags: u64,
        /// Where the message lies, of a multi-receive buffer.
        buf: *mut c_void,
        /// Bytes received, the prefix counted; means nothing for sends.
        len: usize,
        /// The tag of a tagged message.
        tag: u64,
    },
    /// It was not.
    Failed {
        /// The operation's context.
        context: *mut c_void,
        /// Which kind it was, and `FI_MULTI_RECV` when the buffer is given back.
        flags: u64,
        /// `FI_E*`, positive.
        errno: i32,
        /// The provider's own number for it.
        prov_errno: i32,
    },
}

// SAFETY: the pointers are names here: of an operation, and of a place in a buffer. What they name
// is looked up in tables of the port, which only one thread at a time has.
unsafe impl Send for CqEvent {}

impl Domain {
    /// Appends up to `max` events to `out`, and says how many. An error means that the queue is
    /// broken, and with it all that was opened from this domain.
    pub(in crate::ports::rdm) fn read(
        &self,
        out: &mut Vec<CqEvent>,
        max: usize,
    ) -> Result<usize, FabricError> {
        let mut entries = [const { MaybeUninit::<fi_cq_tagged_entry>::uninit() }; BATCH];
        let mut taken = 0;
        while taken < max {
            let asked = BATCH.min(max - taken);
            let buffer = entries.as_mut_ptr().cast();
            // SAFETY: an open queue of this format, and room for as many entries.
            let result = unsafe { fi_cq_read(self.parts.cq.as_ptr(), buffer, asked) };
            let count = match usize::try_from(result) {
                Ok(count) if count <= asked => count,
                // It wrote over more than it was given: nothing here can be trusted any more.
                Ok(_) => return Err(self.error("fi_cq_read", FI_EOVERRUN)),
                Err(_) => match positive(result) {
                    FI_EAGAIN | FI_EINTR => 0,
                    FI_EAVAIL => match self.read_failed(out)? {
                        true => {
                            taken += 1;
                            continue;
                        }
                        false => 0,
                    },
                    // What was taken out before this is not lost: the error comes again.
                    _ if taken > 0 => 0,
                    code => return Err(self.error("fi_cq_read", code)),
                },
            };
            for entry in &entries[..count] {
                // SAFETY: the queue has written this many.
                let entry = unsafe { entry.assume_init_ref() };
                out.push(CqEvent::Done {
                    context: entry.op_context,
                    flags: entry.flags,
                    buf: entry.buf,
                    len: entry.len,
                    tag: entry.tag,
                });
            }
            taken += count;
            if count < asked {
                break;
            }
        }
        Ok(taken)
    }

    /// Appends the failed operation that was announced, if there is one after all.
    fn read_failed(&self, out: &mut Vec<CqEvent>) -> Result<bool, FabricError> {
        let cq = self.parts.cq.as_ptr();
        // No room for `err_data`: the provider then points to its own, valid until the next call.
        let mut entry = fi_cq_err_entry::EMPTY;
        // SAFETY: an open queue, and an entry as long as the newest.
        let result = unsafe { fi_cq_readerr(cq, &raw mut entry, 0) };
        if result != 1 {
            let missed = self.empty_errors.get() + 1;
            self.empty_errors.set(missed);
            return match positive(result) {
                // Another reader cannot have taken it: there is none. A few of these are a race
                // inside the provider, many are a queue that does not work.
                0 | FI_EAGAIN | FI_EINTR if missed < EMPTY_ERRORS => Ok(false),
                0 | FI_EAGAIN | FI_EINTR => Err(self.error("fi_cq_readerr", FI_EAVAIL)),
                code => Err(self.error("fi_cq_readerr", code)),
            };
        }
        self.empty_errors.set(0);
        // The manual wants it positive; some providers have it negated, or 0.
        let errno = match entry.err.checked_abs() {
            None | Some(0) => FI_EOTHER,
            Some(errno) => errno,
        };
        if log::log_enabled!(log::Level::Debug) {
            let text = self.parts.library.strerror(errno);
            let more = self.provider_words(&entry);
            log::debug!(
                "rdm: operation {:?} failed: {text} ({more})",
                entry.op_context
            );
        }
        out.push(CqEvent::Failed {
            context: entry.op_context,
            flags: entry.flags,
            errno,
            prov_errno: entry.prov_errno,
        });
        Ok(true)
    }

    /// The provider's words for a failed operation, right after it was read.
    fn provider_words(&self, entry: &fi_cq_err_entry) -> String {
        let mut buffer = [0 as c_char; 256];
        // SAFETY: an open queue, the entry's own `err_data`, and a buffer of this length.
        let words = unsafe {
            fi_cq_strerror(
                self.parts.cq.as_ptr(),
                entry.prov_errno,
                entry.err_data,
                buffer.as_mut_ptr(),
                buffer.len() - 1,
            )
        };
        if words.is_null() {
            return format!("provider's error {}", entry.prov_errno);
        }
        // SAFETY: a C string: in `buffer`, whose last byte is left 0, or the provider's own.
        unsafe { CStr::from_ptr(words) }
            .to_string_lossy()
            .into_owned()
    }

    /// Makes a peer's address known, and gives what operations name it by. The address may come
    /// from anywhere.
    pub(in crate::ports::rdm) fn insert(&self, address: &[u8]) -> Result<u64, FabricError> {
        let refuse = |code| Err(self.error("fi_av_insert", code));
        if !is_address(self.plan.address_format, address) {
            return refuse(FI_EINVAL);
        }
        // Providers take as many bytes as their addresses have, or all up to a zero: never
        // beyond this, which is longer than any and ends in zeroes.
        let mut room = [0_u64; (ADDRESS_MAX + 2 * ADDRESS_SPARE) / 8];
        // SAFETY: the bytes of `room`, which any value is good for.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<u8>(), size_of_val(&room))
        };
        bytes[..address.len()].copy_from_slice(address);
        let mut peer = FI_ADDR_NOTAVAIL;
        // SAFETY: an open vector, one address with room to spare, and an output.
        let result = unsafe {
            fi_av_insert(
                self.parts.av.as_ptr(),
                bytes.as_ptr().cast(),
                1,
                &raw mut peer,
                0,
                std::ptr::null_mut(),
            )
        };
        match result {
            1 if peer != FI_ADDR_NOTAVAIL => Ok(peer),
            0 | 1 => refuse(FI_EINVAL),
            code if code < 0 => refuse(positive(code as isize)),
            _ => refuse(FI_EOTHER),
        }
    }

    /// Forgets a peer. Nothing must be outstanding with it.
    pub(in crate::ports::rdm) fn remove(&self, peer: u64) {
        let mut peer = peer;
        // SAFETY: an open vector, and an array of one.
        let result = unsafe { fi_av_remove(self.parts.av.as_ptr(), &raw mut peer, 1, 0) };
        if result != 0 {
            let text = self.parts.library.strerror(result);
            log::debug!("rdm: fi_av_remove of {peer}: {text}");
        }
    }
}

/// Opens the queue, with a descriptor if the provider has one that works.
pub(super) fn open(
    fabric: &Handle<fid_fabric>,
    domain: &Handle<fid_domain>,
    plan: &Plan,
) -> Result<(Handle<fid_cq>, Option<RawFd>), i32> {
    let size = (plan.tx_depth.saturating_add(plan.rx_depth))
        .saturating_mul(2)
        .clamp(ENTRIES_MIN, ENTRIES_MAX);
    // Some providers open such a queue and only then say that it has no descriptor.
    if let Ok(cq) = open_with(domain, FI_WAIT_FD, size)
        && let Some(fd) = wait_fd(&cq)
        && try_wait(fabric, &cq).is_ok()
    {
        return Ok((cq, Some(fd)));
    }
    open_with(domain, FI_WAIT_NONE, size)
        .or_else(|_| open_with(domain, FI_WAIT_UNSPEC, size))
        .map(|cq| (cq, None))
}

fn open_with(
    domain: &Handle<fid_domain>,
    wait: fi_wait_obj,
    size: usize,
) -> Result<Handle<fid_cq>, i32> {
    let open = |size| {
        let mut attr = fi_cq_attr {
            size,
            format: FI_CQ_FORMAT_TAGGED,
            wait_obj: wait,
            ..fi_cq_attr::EMPTY
        };
        opened("completion queue", |out| {
            // SAFETY: an open domain, attributes for the time of the call, an output.
            unsafe { fi_cq_open(domain.as_ptr(), &raw mut attr, out, std::ptr::null_mut()) }
        })
    };
    // More than a card can: as many as the provider likes.
    open(size).or_else(|_| open(0))
}

fn wait_fd(cq: &Handle<fid_cq>) -> Option<RawFd> {
    let mut fd: RawFd = -1;
    // SAFETY: an open queue, and an output of the type that `FI_WAIT_FD` has.
    let result = unsafe { fi_getwait(cq.fid(), &raw mut fd) };
    (result == 0 && fd >= 0).then_some(fd)
}

/// Whether `address` can be one in this format, as far as that can be seen. Providers look no
/// closer, or abort the process when they do.
fn is_address(format: u32, address: &[u8]) -> bool {
    let family = address.first_chunk().copied().map(u16::from_ne_bytes);
    let port = address.get(2..4);
    let is_ip = |wanted: i32, len: usize| {
        address.len() == len
            && family == u16::try_from(wanted).ok()
            && port.is_some_and(|port| port != [0, 0])
    };
    let v4 = || is_ip(libc::AF_INET, size_of::<libc::sockaddr_in>());
    let v6 = || is_ip(libc::AF_INET6, size_of::<libc::sockaddr_in6>());
    match format {
        FI_SOCKADDR_IN => v4(),
        FI_SOCKADDR_IN6 => v6(),
        FI_SOCKADDR => v4() || v6(),
        // A zero at the end is added where there is none.
        FI_ADDR_STR => !address.is_empty() && address.len() <= ADDRESS_MAX,
        _ => (1..=ADDRESS_MAX).contains(&address.len()),
    }
}

/// Events taken out at once: 3 KiB of stack.
const BATCH: usize = 64;

/// Entries of the queue at least: what all endpoints of a domain can have outstanding, lanes too,
/// should fit.
const ENTRIES_MIN: usize = 4096;

/// Entries at most, whatever depth the provider claims: 3 MiB.
const ENTRIES_MAX: usize = 65536;

/// Announced failures that turn out to be none, in a row, before the queue counts as broken.
const EMPTY_ERRORS: u32 = 1000;

/// The longest address taken, as in a card.
const ADDRESS_MAX: usize = 256;

/// Zeroes after it.
const ADDRESS_SPARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use libfabric_sys::abi::{FI_ADDR_CXI, FI_SOCKADDR_IB};

    fn v4(port: u16) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        bytes
    }

    fn v6(port: u16) -> Vec<u8> {
        let mut bytes = vec![0; 28];
        bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        bytes
    }

    #[test]
    fn socket_addresses_have_their_family_length_and_port() {
        assert!(is_address(FI_SOCKADDR_IN, &v4(1)));
        assert!(!is_address(FI_SOCKADDR_IN, &v4(0)));
        assert!(!is_address(FI_SOCKADDR_IN, &v4(1)[..15]));
        assert!(!is_address(FI_SOCKADDR_IN, &v6(1)));
        assert!(!is_address(FI_SOCKADDR_IN, &[]));
        assert!(is_address(FI_SOCKADDR_IN6, &v6(1)));
        assert!(!is_address(FI_SOCKADDR_IN6, &v4(1)));
        assert!(is_address(FI_SOCKADDR, &v4(1)) && is_address(FI_SOCKADDR, &v6(1)));
    }

    #[test]
    fn other_addresses_have_a_length_that_a_card_takes() {
        for format in [FI_ADDR_CXI, FI_ADDR_STR, FI_SOCKADDR_IB] {
            assert!(!is_address(format, &[]));
            assert!(is_address(format, &[1]));
            assert!(is_address(format, &[1; 256]));
            assert!(!is_address(format, &[1; 257]));
        }
    }
}
