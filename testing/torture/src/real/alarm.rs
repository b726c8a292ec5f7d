//! SIGSEGV handler of a node: the library, or a test, has accessed memory that does not belong to
//! it.
//!
//! ```text
//!   SIGSEGV --> note to the director: owner of the memory, code --> the process stops
//!                                                  director: gdb, then kill -9 by its pid
//! ```
//!
//! Owns: the signal's handler.
//! Out of scope: operations, except for their labels.

use super::line::LINE_FD;
use super::memory;
use libc::{c_int, c_void};

/// Installs the handler, on a stack of its own.
pub(crate) fn install() {
    // Loads the functions that the handler calls, which allocates the first time.
    trace(-1);
    let stack = Box::leak(vec![0u8; STACK].into_boxed_slice());
    let stack = libc::stack_t {
        ss_sp: stack.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: STACK,
    };
    // SAFETY: memory that is never freed.
    unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) };
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: all zeros is a valid value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler has the type that SA_SIGINFO asks for.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

extern "C" fn on_fault(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel gives a valid one with these signals.
    let address = unsafe { (*info).si_addr() } as usize;
    let mut text = Text::new();
    text.word("fault memory at ");
    text.hex(address as u64);
    match memory::owner(address) {
        Some(label) => {
            text.word(" touched, which is or was operation ");
            text.hex(label);
            text.word("'s (hexadecimal, as the recorder has it)");
        }
        None => text.word(" touched, which is no buffer of an operation"),
    }
    let flags = libc::MSG_NOSIGNAL;
    // SAFETY: the text outlives the call.
    unsafe { libc::send(LINE_FD, text.bytes.as_ptr().cast(), text.len, flags) };
    trace(2);
    // Every thread stops here, as it is; the director looks at them and kills the process.
    // SAFETY: takes a number.
    unsafe { libc::raise(libc::SIGSTOP) };
    // SAFETY: takes a number.
    unsafe { libc::_exit(FAULT_EXIT) };
}

/// Writes this thread's stack to a descriptor.
fn trace(fd: c_int) {
    let mut frames = [std::ptr::null_mut(); 64];
    // SAFETY: room for so many frames.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), 64) };
    if fd >= 0 {
        // SAFETY: `count` frames were filled in.
        unsafe { libc::backtrace_symbols_fd(frames.as_ptr(), count, fd) };
    }
}

/// Formats text without an allocation.
struct Text {
    bytes: [u8; 256],
    len: usize,
}

impl Text {
    fn new() -> Self {
        Self {
            bytes: [0; 256],
            len: 0,
        }
    }

    fn word(&mut self, word: &str) {
        for byte in word.bytes() {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
    }

    fn hex(&mut self, value: u64) {
        self.word("0x");
        let digits = (64 - value.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            let nibble = (value >> (digit * 4)) as usize & 15;
            self.word(&"0123456789abcdef"[nibble..=nibble]);
        }
    }
}

const STACK: usize = 1 << 17;
/// Exit code of a node that found a fault.
pub(crate) const FAULT_EXIT: c_int = 99;

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn texts_are_put_together_and_cut() {
        let mut text = Text::new();
        text.word("at ");
        text.hex(0);
        text.hex(0x1f0);
        assert_eq!(&text.bytes[..text.len], b"at 0x00x1f0");
        text.word(&"x".repeat(1000));
        assert_eq!(text.len, text.bytes.len());
    }
}
