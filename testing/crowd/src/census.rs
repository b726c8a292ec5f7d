//! The resources of a process: memory, descriptors, threads, processor time.
//!
//! ```text
//!   heap     bytes allocated and not freed               mallinfo2
//!   rss      bytes resident in memory                   /proc/self/statm
//!   kernel   bytes of data in all processes' sockets     /proc/net/sockstat
//!   slab     bytes of the kernel's objects               /proc/meminfo, of the whole machine
//! ```
//!
//! Owns: the readings of one moment.

use serde::{Deserialize, Serialize};
use std::fs;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Resources of a server at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Census {
    /// Bytes allocated and not freed.
    pub heap: u64,
    /// Bytes resident in memory.
    pub rss: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
    /// Processor time used so far, in microseconds, including the kernel's.
    pub cpu_us: u64,
    /// Bytes of data in TCP sockets of the whole machine.
    pub socket_bytes: u64,
    /// Bytes of the kernel's objects, of the whole machine.
    pub slab_bytes: u64,
    /// Requests received so far; 0 for a crowd.
    pub requests: u64,
}

impl Census {
    /// Measures this process.
    pub fn take(requests: u64) -> Self {
        // Read first, so that it does not include this call, whose cost shows in the next one.
        let cpu_us = processor_time().as_micros() as u64;
        // SAFETY: takes nothing.
        let info = unsafe { libc::mallinfo2() };
        Self {
            heap: (info.uordblks + info.hblkhd) as u64,
            rss: resident(),
            descriptors: descriptors(),
            threads: entries("/proc/self/task"),
            cpu_us,
            socket_bytes: socket_pages() * page(),
            slab_bytes: kilobytes("/proc/meminfo", "Slab:") * 1024,
            requests,
        }
    }
}

/// Returns the number of descriptors. Kernels from 6.2 on know it; counting takes milliseconds for
/// thousands.
fn descriptors() -> u64 {
    let known = fs::metadata("/proc/self/fd").map_or(0, |directory| directory.len());
    match known {
        0 => entries("/proc/self/fd"),
        known => known,
    }
}

fn entries(directory: &str) -> u64 {
    fs::read_dir(directory).map_or(0, |all| all.count() as u64)
}

fn page() -> u64 {
    // SAFETY: takes a number.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_ascii_whitespace().nth(1);
    pages.and_then(|pages| pages.parse().ok()).unwrap_or(0) * page()
}

fn processor_time() -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` has room for what the kernel writes.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        return Duration::ZERO;
    }
    // SAFETY: written by the successful call.
    let usage = unsafe { usage.assume_init() };
    let of = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// Returns the number of pages in the line `TCP: inuse 5 orphan 0 tw 0 alloc 7 mem 2`.
fn socket_pages() -> u64 {
    let text = fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("TCP:"));
    let mut words = line.unwrap_or_default().split_ascii_whitespace();
    let mem = words.find(|word| *word == "mem").and_then(|_| words.next());
    mem.and_then(|mem| mem.parse().ok()).unwrap_or(0)
}

fn kilobytes(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_ascii_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_census_finds_this_process() {
        let census = Census::take(7);
        assert!(census.heap > 0 && census.rss > 0 && census.cpu_us > 0);
        assert!(census.descriptors >= 3 && census.threads >= 1);
        // The listing needs a descriptor itself, and other tests may open or close some.
        assert!(entries("/proc/self/fd").abs_diff(census.descriptors) < 32);
    }
}
