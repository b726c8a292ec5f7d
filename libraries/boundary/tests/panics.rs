//! Panics write a line to a stderr that may be full, or have no reader.

use crate::own_process::in_own_process;
use mx_boundary::caught;
use mx_sys::stderr::take_panics;
use std::io::Read;
use std::os::fd::AsRawFd;

#[test]
fn a_panic_is_a_line_of_the_log() {
    in_own_process!();
    let (mut reader, writer) = std::io::pipe().unwrap();
    take_panics();
    // SAFETY: no pointers but those of libc's own constants.
    unsafe {
        libc::dup2(writer.as_raw_fd(), libc::STDERR_FILENO);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        // Ends a blocked process.
        libc::alarm(20);
    }
    drop(writer);
    let panics = || caught("test", || panic!("at\n{}", 7));
    panics();
    let mut text = [0; 4096];
    let count = reader.read(&mut text).unwrap();
    let line = std::str::from_utf8(&text[..count]).unwrap();
    assert!(line.contains("panics.rs") && line.ends_with("at 7\n"));
    assert_eq!(line.matches('\n').count(), 1);
    // The pipe fills up, and then loses its reader.
    for _ in 0..2000 {
        panics();
    }
    drop(reader);
    panics();
}
