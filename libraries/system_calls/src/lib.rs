//! System calls on the libraries' own descriptors, hidden from interposers.
//!
//! ```text
//!   program, other libraries ---> read ---> interposer (LD_PRELOAD, the program) ---> glibc ---> kernel
//!   this library, Rust's std ---> read, hidden, in here ------------------------------------------^
//! ```
//!
//! Programs that log or redirect files replace the C library's `open`, `socket`, `read` and `close`, and keep a table
//! of the process's descriptors; OrangeFS's own preload library does. Descriptors of this library must not be in such a
//! table: the interposer takes them for the program's, passes them on over `exec`, or closes them. Therefore each
//! library has its own copies of these functions. The linker binds every call in the library to them, including those
//! of the standard library and other crates, and hidden visibility keeps them out of the dynamic symbol table.
//!
//! Owns: the list of C functions that take or return a descriptor. The tests of the exported symbols check that a
//! library imports none of them.
//! Out of scope: descriptors that libfabric and the C library's resolver open, which close these themselves.
//! Cost: a few instructions per system call. Unlike the C library's functions, none is a cancellation point.

#![no_std]

use core::arch::global_asm;
use core::ptr;
use libc::{c_char, c_int, c_long, c_void, mode_t, pollfd, size_t, timespec};

/// Instruction that continues in another function.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {function}"
    };
}

/// Defines C functions of these names, visible in the library only, that continue in `$function`.
macro_rules! hidden {
    ($function:path: $($name:literal)+) => {
        $(global_asm!(
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", %function"),
            concat!($name, ":"),
            jump!(),
            function = sym $function,
        );)+
    };
}

/// Defines C functions whose arguments are those of a system call, by name and number. The kernel ignores registers
/// beyond the call's own arguments.
macro_rules! pass_on {
    ($($function:ident, $number:ident: $($name:literal)+;)*) => {
        $(
            unsafe extern "C" fn $function(
                a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long,
            ) -> c_long {
                // SAFETY: the caller keeps the contract of the C function, which is the system call's.
                unsafe { libc::syscall(libc::$number, a, b, c, d, e, f) }
            }
            hidden!($function: $($name)+);
        )*
    };
}

pass_on! {
    accept4, SYS_accept4: "accept4";
    bind, SYS_bind: "bind";
    close, SYS_close: "close";
    connect, SYS_connect: "connect";
    epoll_create1, SYS_epoll_create1: "epoll_create1";
    epoll_ctl, SYS_epoll_ctl: "epoll_ctl";
    eventfd, SYS_eventfd2: "eventfd";
    fcntl, SYS_fcntl: "fcntl" "fcntl64";
    fstat, SYS_fstat: "fstat" "fstat64";
    fstatfs, SYS_fstatfs: "fstatfs" "fstatfs64";
    ftruncate, SYS_ftruncate: "ftruncate" "ftruncate64";
    getsockname, SYS_getsockname: "getsockname";
    getsockopt, SYS_getsockopt: "getsockopt";
    ioctl, SYS_ioctl: "ioctl";
    listen, SYS_listen: "listen";
    lseek, SYS_lseek: "lseek" "lseek64";
    memfd_create, SYS_memfd_create: "memfd_create";
    mmap, SYS_mmap: "mmap" "mmap64";
    read, SYS_read: "read";
    readv, SYS_readv: "readv";
    recvmmsg, SYS_recvmmsg: "recvmmsg";
    recvmsg, SYS_recvmsg: "recvmsg";
    sendmsg, SYS_sendmsg: "sendmsg";
    setsockopt, SYS_setsockopt: "setsockopt";
    shutdown, SYS_shutdown: "shutdown";
    socket, SYS_socket: "socket";
    statx, SYS_statx: "statx";
    timerfd_create, SYS_timerfd_create: "timerfd_create";
    timerfd_settime, SYS_timerfd_settime: "timerfd_settime";
    write, SYS_write: "write";
    writev, SYS_writev: "writev";
}

hidden!(open: "open" "open64");
hidden!(poll: "poll");
hidden!(ppoll: "ppoll");
hidden!(recv: "recv");
hidden!(send: "send");

unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller keeps the contract of `open`.
    unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) as c_int }
}

unsafe extern "C" fn recv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> c_long {
    let source: *mut c_void = ptr::null_mut();
    // SAFETY: the caller keeps the contract of `recv`; no source address is asked for.
    unsafe { libc::syscall(libc::SYS_recvfrom, fd, to, len, flags, source, source) }
}

unsafe extern "C" fn send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> c_long {
    let destination: *const c_void = ptr::null();
    // SAFETY: the caller keeps the contract of `send`; there is no destination of zero bytes.
    unsafe { libc::syscall(libc::SYS_sendto, fd, from, len, flags, destination, 0usize) }
}

/// Implements `poll`. `timeout`: in milliseconds; negative: no limit.
unsafe extern "C" fn poll(fds: *mut pollfd, count: libc::nfds_t, timeout: c_int) -> c_int {
    let span = timespec {
        tv_sec: (timeout / 1000).into(),
        tv_nsec: (timeout % 1000 * 1_000_000).into(),
    };
    let span = if timeout < 0 {
        ptr::null()
    } else {
        &raw const span
    };
    // SAFETY: the caller keeps the contract of `poll`, and the span outlives the call.
    unsafe { ppoll(fds, count, span, ptr::null()) }
}

/// Implements `ppoll`. The kernel writes the remaining time into its argument, the C function does not.
unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: libc::nfds_t,
    timeout: *const timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: the caller passes null or a time to read.
    let mut span = unsafe { timeout.as_ref() }.copied();
    let span = span.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the caller keeps the contract of `ppoll`, and the span outlives the call.
    unsafe { libc::syscall(libc::SYS_ppoll, fds, count, span, mask, KERNEL_SIGSET) as c_int }
}

/// Size in bytes of the kernel's signal set, the beginning of the C library's.
const KERNEL_SIGSET: size_t = 8;
