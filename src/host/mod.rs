//! The host's functions that the method calls.
//!
//! ```text
//!   bmi_mx_set_host(&host) ------> the program's functions, if given
//!                                    |  no log, or neither of reg_addr and forget_addr
//!                                    v
//!   dlsym in the caller's library, bmi_method_addr_reg_callback, _forget_callback, gossip
//!   then everywhere ---------------> |
//!                                    |  not found
//!                                    v
//!                                  a number of our own: a plain C server works
//! ```
//!
//! The caller's library is searched first: a process may have two hosts, or one that was loaded with RTLD_LOCAL, as
//! Mercury loads its plugin.
//!
//! The library has no undefined host symbol: Rust's shared libraries bind all symbols on loading, which would fail
//! outside a host (docs/hosts.md, Linking).
//!
//! Owns: the pointers to the host's functions and data.
//! Out of scope: peers, log levels.

mod caller;
mod facts;

pub use facts::{Facts, facts, is};

use crate::abi::types::{BMI_addr_t, bmi_method_addr, bmi_mx_host};
use libc::{c_char, c_int, c_void};
use mx_sys::cancellation::CancellationDisabled;
use parking_lot::RwLock;
use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

/// OrangeFS's logger: functions and variables that were found in the host.
#[derive(Clone, Copy)]
pub struct Gossip {
    /// `gossip_err`.
    error: unsafe extern "C" fn(format: *const c_char, ...) -> c_int,
    /// `__gossip_debug`.
    debug: unsafe extern "C" fn(mask: u64, prefix: c_char, format: *const c_char, ...) -> c_int,
    mask: *const u64,
    on: *const c_int,
    facility: *const c_int,
}

// SAFETY: functions, and words of the host that live as long as the process and may be read from any thread (the host
// itself reads and writes them without a lock).
unsafe impl Send for Gossip {}
// SAFETY: as above.
unsafe impl Sync for Gossip {}

/// Bit of the host's `gossip_debug_mask` that enables this method's debug lines.
pub const GOSSIP_BMI_DEBUG_MX: u64 = 1 << 50;

type RegAddr = unsafe extern "C" fn(addr: *mut bmi_method_addr) -> BMI_addr_t;
type ForgetAddr = unsafe extern "C" fn(addr: BMI_addr_t) -> c_int;

/// Last argument of `bmi_mx_set_host`.
static GIVEN: RwLock<Option<bmi_mx_host>> = RwLock::new(None);

/// Results of `dlsym`.
struct Found {
    reg_addr: Option<RegAddr>,
    forget_addr: Option<ForgetAddr>,
    gossip: Option<Gossip>,
}

/// Returns the results, looking them up in the first call from C, whose caller is the host.
fn found() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| {
        let host = caller::library();
        let reg_addr = host.symbol(c"bmi_method_addr_reg_callback");
        let forget_addr = host.symbol(c"bmi_method_addr_forget_callback");
        // SAFETY: the host's functions of these names have these signatures (docs/hosts.md, Layouts); no other
        // functions have these names.
        unsafe {
            Found {
                reg_addr: reg_addr.map(|p| std::mem::transmute::<*mut c_void, RegAddr>(p)),
                forget_addr: forget_addr.map(|p| std::mem::transmute::<*mut c_void, ForgetAddr>(p)),
                gossip: find_gossip(host),
            }
        }
    })
}

fn find_gossip(host: caller::Library) -> Option<Gossip> {
    let error = host.symbol(c"gossip_err")?;
    let debug = host.symbol(c"__gossip_debug")?;
    let mask = host.symbol(c"gossip_debug_mask")?;
    let on = host.symbol(c"gossip_debug_on")?;
    let facility = host.symbol(c"gossip_facility")?;
    // SAFETY: signatures and types of the host's logger (docs/hosts.md, Layouts).
    unsafe {
        Some(Gossip {
            error: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const c_char, ...) -> c_int,
            >(error),
            debug: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(u64, c_char, *const c_char, ...) -> c_int,
            >(debug),
            mask: mask.cast_const().cast(),
            on: on.cast_const().cast(),
            facility: facility.cast_const().cast(),
        })
    }
}

/// Returns whether the host has a function to register peers, for [`register_addr`] to call.
pub fn is_there() -> bool {
    pair().0.is_some()
}

/// Sets the functions given to `bmi_mx_set_host`, which take precedence over those that `dlsym` finds in the host;
/// `None` removes them.
pub fn set_host(host: Option<bmi_mx_host>) {
    *GIVEN.write() = host;
    // Look up now, while the caller is the host: another thread may be the first to need a missing function.
    found();
}

/// Returns the functions that register and forget peers. Both are given or both looked up: one host's ids mean nothing
/// to another.
fn pair() -> (Option<RegAddr>, Option<ForgetAddr>) {
    let given = *GIVEN.read();
    match given {
        Some(host) if host.reg_addr.is_some() || host.forget_addr.is_some() => {
            (host.reg_addr, host.forget_addr)
        }
        _ => (found().reg_addr, found().forget_addr),
    }
}

/// Returns the logger passed to `bmi_mx_set_host`; `None` if none was.
pub fn given_log() -> Option<unsafe extern "C" fn(level: c_int, line: *const c_char)> {
    GIVEN.read().as_ref().and_then(|host| host.log)
}

/// Returns OrangeFS's logger; `None` if the host does not export one.
pub fn gossip() -> Option<&'static Gossip> {
    found().gossip.as_ref()
}

/// Registers a peer that connected to this process, and returns the host's id for it: 0 if the host is out of memory.
/// Without a host the id is a unique number of this library.
///
/// Called only from inside test calls, once per address, and without locks held: OrangeFS takes no lock of its own
/// here, and a host may call back.
///
/// # Safety
///
/// `addr` points to an address object that lives until the host drops it.
pub unsafe fn register_addr(addr: *mut bmi_method_addr) -> BMI_addr_t {
    let _off = CancellationDisabled::new();
    match pair().0 {
        // SAFETY: a function of this signature; the caller vouches for `addr`.
        Some(register) => unsafe { register(addr) },
        None => next_own_name(),
    }
}

/// Tells the host that the peer with the id `name` is lost, so that it may drop the address. Has no effect if the host
/// has no function for that.
pub fn forget_addr(name: BMI_addr_t) {
    if let Some(forget) = pair().1 {
        let _off = CancellationDisabled::new();
        // SAFETY: a function of this signature; any number is a legal argument.
        unsafe { forget(name) };
    }
}

/// Returns a peer id for use without a host. Large enough to stand out in a log.
fn next_own_name() -> BMI_addr_t {
    static NEXT: AtomicI64 = AtomicI64::new(1 << 40);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Gossip {
    /// Returns whether the host's log settings at this moment enable debug lines of this method.
    pub fn debug_wanted(&self) -> bool {
        // SAFETY: words of the host, aligned and always mapped. Volatile, because the host changes them without
        // synchronization.
        unsafe {
            self.on.read_volatile() != 0
                && self.facility.read_volatile() != 0
                && self.mask.read_volatile() & GOSSIP_BMI_DEBUG_MX != 0
        }
    }

    /// Writes a line at the error level.
    pub fn error(&self, line: &CStr) {
        // SAFETY: the format takes one C string, and gets one.
        unsafe { (self.error)(c"%s\n".as_ptr(), line.as_ptr()) };
    }

    /// Writes a line with a letter for its level, whether or not debug lines are wanted.
    pub fn debug(&self, letter: u8, line: &CStr) {
        let letter = letter as c_char;
        // SAFETY: as above.
        unsafe { (self.debug)(GOSSIP_BMI_DEBUG_MX, letter, c"%s\n".as_ptr(), line.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TOLD: AtomicI64 = AtomicI64::new(0);

    unsafe extern "C" fn seven(_: *mut bmi_method_addr) -> BMI_addr_t {
        7
    }

    unsafe extern "C" fn told(name: BMI_addr_t) -> c_int {
        TOLD.store(name, Ordering::Relaxed);
        0
    }

    #[test]
    fn every_peer_gets_a_name_from_the_host_or_else_one_of_its_own() {
        assert!(!is_there());
        let mut addr = bmi_method_addr::new(0);
        // SAFETY: a live object; a test program has no host whose function could keep it.
        let names = unsafe { [register_addr(&raw mut addr), register_addr(&raw mut addr)] };
        assert_ne!(names[0], 0);
        assert_ne!(names[0], names[1]);
        forget_addr(names[0]);

        let mut host = bmi_mx_host {
            size: size_of::<bmi_mx_host>(),
            reg_addr: Some(seven),
            forget_addr: None,
            log: None,
        };
        set_host(Some(host));
        assert!(is_there());
        // SAFETY: as above; this host keeps nothing either.
        assert_eq!(unsafe { register_addr(&raw mut addr) }, 7);
        forget_addr(7);
        assert_eq!(TOLD.load(Ordering::Relaxed), 0);
        host.reg_addr = None;
        host.forget_addr = Some(told);
        set_host(Some(host));
        assert!(!is_there());
        // SAFETY: as above.
        let name = unsafe { register_addr(&raw mut addr) };
        assert!(name != 7 && !names.contains(&name));
        forget_addr(name);
        assert_eq!(TOLD.load(Ordering::Relaxed), name);
        set_host(None);
    }
}
