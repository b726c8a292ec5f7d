//! Finds the open endpoints of this machine's processes.
//!
//! ```text
//!   /proc/<pid>/ns/net as ours?                          board and endpoint numbers are per namespace
//!   /proc/<pid>/fd/*  "/memfd:mx-endpoint (deleted)"
//!      --> an ordinary file? sealed, of a page's size?      the descriptor may have been replaced meanwhile
//!      --> read until the sequence stands still             the owner may be writing
//!      --> a page, and this process's?                      children of fork have the descriptor
//! ```
//!
//! Pages are read, not mapped: a hostile process can show wrong numbers but do no harm. Processes that may not be
//! inspected are left out.
//!
//! Owns: nothing.
//! Cost: some system calls for each process, one for each of its descriptors.

use super::layout::{LEN, LEN_WITH_PEERS, LINK, PEER_WORDS};
use super::page::{Bytes, Page, sequence};
use super::peers::{Peer, Row};
use mx_port_base::sealed;
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

/// Open endpoint of some process, read from the page that its process publishes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Id of the owning process, in this process's PID namespace.
    pub pid: u32,
    /// Contents of the endpoint's page.
    pub page: Page,
    /// Peers of the endpoint, unordered.
    pub peers: Vec<Peer>,
}

/// Maximum number of endpoints of one process; more are ignored as suspicious.
const PROCESS_MAX: usize = 1024;

/// Attempts to read a page that is being written. Writing takes less time than reading, so that two attempts usually
/// suffice. A page whose writer was stopped halfway is returned as inconsistent, a row is skipped.
const TRIES: u32 = 32;

/// Returns the open endpoints of all processes in this network namespace whose pages this process may read, by process
/// id and endpoint number.
pub fn find() -> Vec<Found> {
    let mut found = Vec::new();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return found;
    };
    let ours = network(Path::new("/proc/self"));
    for process in processes.flatten() {
        let name = process.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok())
            && network(&process.path()) == ours
        {
            found.append(&mut find_in(pid));
        }
    }
    found.sort_by_key(|found| (found.pid, found.page.endpoint.0));
    found
}

/// Returns the network namespace of a process; `None` if the process may not be inspected, or the kernel has no
/// namespaces.
fn network(process: &Path) -> Option<PathBuf> {
    std::fs::read_link(process.join("ns/net")).ok()
}

/// Returns the open endpoints of one process, by number, whatever its network namespace.
pub fn find_in(pid: u32) -> Vec<Found> {
    let mut found = Vec::new();
    let process = Path::new("/proc").join(pid.to_string());
    let Ok(descriptors) = std::fs::read_dir(process.join("fd")) else {
        return found;
    };
    let mut own_pids = None;
    let mut seen = HashSet::new();
    for descriptor in descriptors.flatten() {
        let path = descriptor.path();
        let is_page =
            std::fs::read_link(&path).is_ok_and(|link| link.as_os_str().as_bytes() == LINK);
        if !is_page || seen.len() == PROCESS_MAX {
            continue;
        }
        let Ok((file, inode)) = open(&path) else {
            continue;
        };
        // A descriptor may be a duplicate.
        if !seen.insert(inode) {
            continue;
        }
        let Some(page) = read(&file) else {
            continue;
        };
        let own_pids = own_pids.get_or_insert_with(|| pids_of(&process, pid));
        if own_pids.contains(&page.own_pid) {
            let peers = peers(&file, page.peers);
            found.push(Found { pid, page, peers });
        }
    }
    found.sort_by_key(|found| found.page.endpoint.0);
    found
}

/// Opens a descriptor that looks like a page, if it is sealed memory of a page's size.
fn open(path: &Path) -> io::Result<(File, (u64, u64))> {
    let handle = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)?;
    let metadata = handle.metadata()?;
    // Opening a device or a FIFO can have side effects.
    if !metadata.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let file = File::open(format!("/proc/self/fd/{}", handle.as_raw_fd()))?;
    let fd = OwnedFd::from(file);
    sealed::check(&fd, LEN_WITH_PEERS).map_err(|unfit| io::Error::other(unfit.to_string()))?;
    Ok((fd.into(), (metadata.dev(), metadata.ino())))
}

fn read(file: &File) -> Option<Page> {
    let mut bytes: Bytes = [0; LEN];
    for _ in 0..TRIES {
        file.read_exact_at(&mut bytes, 0).ok()?;
        // The kernel's reads before this fence stay before it.
        fence(Ordering::SeqCst);
        let mut again: Bytes = [0; LEN];
        file.read_exact_at(&mut again, 0).ok()?;
        // A writer that began before the first reading ended has by now changed the sequence, or the words read before.
        if sequence(&bytes) % 2 == 0 && again == bytes {
            return Page::parse(&bytes, true);
        }
        std::thread::yield_now();
    }
    Page::parse(&bytes, false)
}

/// Returns the peers in the first rows. A row that was being written at each attempt is left out.
fn peers(file: &File, rows: usize) -> Vec<Peer> {
    const ROW: usize = PEER_WORDS * 8;
    let mut bytes = vec![0; rows * ROW];
    if file.read_exact_at(&mut bytes, LEN as u64).is_err() {
        return Vec::new();
    }
    let parse = |bytes: &[u8]| {
        let mut row = Row::default();
        for (word, bytes) in row.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        Peer::parse(&row)
    };
    let mut found = Vec::new();
    for (place, row) in bytes.chunks_exact_mut(ROW).enumerate() {
        for _ in 0..TRIES {
            let before = row.to_vec();
            // The kernel's reads before this fence stay before it.
            fence(Ordering::SeqCst);
            if before.iter().all(|byte| *byte == 0)
                || file.read_exact_at(row, (LEN + place * ROW) as u64).is_err()
            {
                break;
            }
            if before == row {
                found.extend(parse(row));
                break;
            }
        }
    }
    found
}

/// Returns the ids of a process in all its PID namespaces, from this process's to its own.
fn pids_of(process: &Path, pid: u32) -> Vec<u32> {
    let mut status = Vec::new();
    let read = File::open(process.join("status"))
        .and_then(|file| file.take(1 << 16).read_to_end(&mut status));
    if let Err(error) = read {
        log::debug!("{}: {error}", process.display());
    }
    // A process's name may contain any bytes.
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let numbers = line.unwrap_or_default().split_whitespace();
    let mut pids: Vec<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
    pids.push(pid);
    pids
}
