//! The reserve, in a separate process whose address space is limited.
//!
//! ```text
//!   fill        limit        all memory is taken, then more ---> from the reserve, and the level falls
//!                            freed ----------------------------> Ample again
//!   claims      granted while twice the claims are available, and rejected beyond
//! ```

#![allow(clippy::print_stdout, reason = "a program, as far as its user sees")]

use mx_proto::supply::MemoryLevel;
use mx_reserve::{self as reserve, SUPPLY};
use std::hint::black_box;

mx_reserve::library_allocator!();

const MIB: usize = 1 << 20;

fn main() {
    assert_eq!(
        reserve::level(),
        MemoryLevel::Ample,
        "nothing is kept back yet"
    );
    assert!((SUPPLY.claim)(1 << 60), "and claims are not checked");
    (SUPPLY.release)(1 << 60);
    reserve::fill();
    limit(40 * MIB);
    assert_eq!(reserve::level(), MemoryLevel::Ample);

    // Small and large allocations succeed after memory has run out.
    let taken = take_all();
    let small: Vec<Box<[u8; 100]>> = (0..1000).map(|n| Box::new([n as u8; 100])).collect();
    let mut large: Vec<Vec<u8>> = Vec::new();
    for level in [MemoryLevel::Short, MemoryLevel::Critical] {
        while reserve::level() < level {
            assert!(large.len() < 10, "it is used up by what is taken from it");
            large.push(black_box(vec![7; 600_000]));
        }
        assert_eq!(reserve::level(), level);
    }
    large.push(black_box(vec![8; 600_000]));
    assert!(!SUPPLY.is_ample() && SUPPLY.is_critical());
    // A request that can never be met costs nothing.
    assert!(Vec::<u8>::new().try_reserve_exact(1 << 40).is_err());
    assert!(
        small
            .iter()
            .enumerate()
            .all(|(n, piece)| **piece == [n as u8; 100])
    );
    drop((small, large));
    give_back(taken);
    assert_eq!(
        reserve::level(),
        MemoryLevel::Ample,
        "there is memory again"
    );

    // A claim is reserved, and as much again has to be available.
    assert!((SUPPLY.claim)(8 * MIB));
    assert!(!(SUPPLY.claim)(20 * MIB));
    assert_eq!(
        reserve::level(),
        MemoryLevel::Ample,
        "what is refused is not kept back"
    );
    let taken = take_all();
    let grown: Vec<u8> = black_box(vec![9; 8 * MIB]);
    assert_ne!(reserve::level(), MemoryLevel::Ample);
    drop(grown);
    give_back(taken);
    (SUPPLY.release)(8 * MIB);
    assert_eq!(reserve::level(), MemoryLevel::Ample);
    reserve::empty();
    assert_eq!(reserve::level(), MemoryLevel::Ample);
    println!("test reserve ... ok");
}

/// Limits the address space of this process to `more` bytes than now.
fn limit(more: usize) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').next().unwrap().parse().unwrap();
    // SAFETY: plain system calls on a structure of our own.
    unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let mut limit = std::mem::zeroed::<libc::rlimit>();
        assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &raw mut limit), 0);
        limit.rlim_cur = (pages * page + more) as libc::rlim_t;
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &raw const limit), 0);
    }
}

/// Takes all memory of the C library, in a list.
fn take_all() -> *mut *mut u8 {
    let mut taken: *mut *mut u8 = std::ptr::null_mut();
    let mut size = MIB;
    while size >= 64 {
        // SAFETY: a piece of `size` bytes, the first of which hold the address of the previous piece.
        unsafe {
            let piece = libc::malloc(size).cast::<*mut u8>();
            if piece.is_null() {
                size /= 4
            } else {
                piece.write(taken.cast());
                taken = piece;
            }
        }
    }
    taken
}

fn give_back(mut taken: *mut *mut u8) {
    while !taken.is_null() {
        // SAFETY: as `take_all` left it.
        unsafe {
            let before = taken.read();
            libc::free(taken.cast());
            taken = before.cast();
        }
    }
}
