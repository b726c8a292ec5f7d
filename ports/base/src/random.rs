//! Random numbers from the kernel.

use std::io;

/// Returns 128 random bits.
pub fn key() -> io::Result<[u8; 16]> {
    let [low, high] = [nonzero()?, nonzero()?].map(u64::to_ne_bytes);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&low);
    key[8..].copy_from_slice(&high);
    Ok(key)
}

/// Returns 64 random bits, never all 0.
pub fn nonzero() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    loop {
        // SAFETY: `bytes` is valid for writing; the kernel never returns part of so few bytes.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match u64::from_ne_bytes(bytes) {
            number if got == 8 && number != 0 => return Ok(number),
            _ => {}
        }
        let error = io::Error::last_os_error();
        if got < 0 && error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
