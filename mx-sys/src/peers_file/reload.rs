//! A peers file, read again when it has changed.
//!
//! ```text
//!   refresh --> size, times, inode --as before--> nothing to do
//!                                  --changed----> read, parse, report bad lines
//! ```
//!
//! An administrator edits the file when a server moves; clients follow without a remount or a restart.
//!
//! Owns: the contents of the file at the last check.
//! Cost: checking an unchanged file is one system call.

use super::{BadLine, Peers, parse};
use crate::settings::PEERS_FILE;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A peers file, read again when it has changed.
#[derive(Debug)]
pub(crate) struct PeersFile {
    /// Path of the file; `None` for no file.
    path: Option<PathBuf>,
    seen: Seen,
    peers: Peers,
    bad: Vec<BadLine>,
}

/// State of the file at the last check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    /// The file has not been read, or has to be read again.
    Unknown,
    /// The file does not exist or cannot be read.
    Unreadable(io::ErrorKind),
    /// The file was read when its metadata were these.
    As(Stamp),
}

/// Metadata that change with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Longest file that is read, in bytes: some hundred thousand hosts.
const SIZE_MAX: u64 = 16 << 20;

/// Age from which a file's times are trusted. A younger file may change again without its times changing: the file
/// system's clock is coarser, and another machine's may be wrong by more.
const SETTLED: Duration = Duration::from_secs(2);

/// Maximum number of invalid lines logged.
const LINES_TOLD: usize = 16;

impl PeersFile {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            seen: Seen::Unknown,
            peers: Peers::default(),
            bad: Vec::new(),
        }
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the contents at the last check.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Reads the file if it has changed. Returns whether its contents differ from before.
    pub(crate) fn refresh(&mut self) -> bool {
        let Some(path) = self.path.clone() else {
            return false;
        };
        let now = match std::fs::metadata(&path) {
            Ok(metadata) => Seen::As(Stamp::of(&metadata)),
            Err(error) => Seen::Unreadable(error.kind()),
        };
        if now == self.seen {
            return false;
        }
        match read(&path) {
            Ok((text, metadata)) => {
                let (peers, bad) = parse(&text);
                self.seen = if is_settled(&metadata) {
                    Seen::As(Stamp::of(&metadata))
                } else {
                    Seen::Unknown
                };
                self.take(&path, peers, bad)
            }
            Err(error) => {
                let seen = Seen::Unreadable(error.kind());
                if seen == self.seen {
                    return false;
                }
                tell_unreadable(&path, &error);
                self.seen = seen;
                self.take(&path, Peers::default(), Vec::new())
            }
        }
    }

    fn take(&mut self, path: &Path, peers: Peers, bad: Vec<BadLine>) -> bool {
        if bad != self.bad {
            for bad in bad.iter().take(LINES_TOLD) {
                log::warn!("{}:{}: {bad}", path.display(), bad.line);
            }
            if let Some(more) = bad.len().checked_sub(LINES_TOLD).filter(|more| *more > 0) {
                log::warn!("{}: {more} more invalid lines", path.display());
            }
            self.bad = bad;
        }
        let changed = peers != self.peers;
        if changed {
            log::debug!("{}: {} peers", path.display(), peers.all().len());
            self.peers = peers;
        }
        changed
    }
}

/// Logs an unreadable file, except a missing default file: most machines have none, and need none.
fn tell_unreadable(path: &Path, error: &io::Error) {
    let usual = error.kind() == io::ErrorKind::NotFound && path == Path::new(PEERS_FILE);
    if !usual {
        log::warn!(
            "{}: cannot be read, so no peers are known from it: {error}",
            path.display()
        );
    }
}

fn is_settled(metadata: &Metadata) -> bool {
    let changed = metadata
        .modified()
        .ok()
        .and_then(|modified| SystemTime::now().duration_since(modified).ok());
    changed.is_some_and(|age| age > SETTLED)
}

fn read(path: &Path) -> io::Result<(String, Metadata)> {
    // `O_NONBLOCK`: opening a FIFO must not wait for a writer.
    let file: File = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    let mut bytes = Vec::new();
    if metadata.len() <= SIZE_MAX {
        // The file may have grown since `metadata`.
        (&file).take(SIZE_MAX + 1).read_to_end(&mut bytes)?;
    }
    if metadata.len().max(bytes.len() as u64) > SIZE_MAX {
        let text = format!("longer than {} MiB", SIZE_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    // Invalid UTF-8 becomes a character that no name contains.
    Ok((String::from_utf8_lossy(&bytes).into_owned(), metadata))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(peers: &Peers, name: &str) -> Vec<String> {
        let found = peers.addresses_of(name).into_iter();
        found.map(|address| address.ip().to_string()).collect()
    }

    /// A temporary directory of one test, removed on drop.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let place = std::env::temp_dir().join(format!("mx-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&place).unwrap();
            Self(place)
        }

        fn file(&self) -> PathBuf {
            self.0.join("peers")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_read_again_when_it_has_changed() {
        let place = Place::new("peers-changes");
        let mut file = PeersFile::new(Some(place.file()));
        assert!(!file.refresh());
        assert!(file.peers().all().is_empty());
        std::fs::write(place.file(), "10.0.0.1 one\n").unwrap();
        assert!(file.refresh());
        assert_eq!(addresses(file.peers(), "one"), ["10.0.0.1"]);
        // Same length, and within one tick of the file system's clock.
        std::fs::write(place.file(), "10.0.0.2 one\n").unwrap();
        assert!(file.refresh());
        assert_eq!(addresses(file.peers(), "one"), ["10.0.0.2"]);
        assert!(!file.refresh());
        std::fs::remove_file(place.file()).unwrap();
        assert!(file.refresh());
        assert!(file.peers().all().is_empty());
        assert!(!file.refresh());
    }

    #[test]
    fn an_old_file_that_has_not_changed_is_not_read_again() {
        let place = Place::new("peers-old");
        let written = File::create(place.file()).unwrap();
        let long_ago = SystemTime::now() - Duration::from_secs(3600);
        written.set_modified(long_ago).unwrap();
        let mut file = PeersFile::new(Some(place.file()));
        file.refresh();
        assert!(matches!(file.seen, Seen::As(_)));
        assert!(!file.refresh());
    }

    #[test]
    fn what_is_no_ordinary_file_of_a_sensible_size_is_not_read() {
        let place = Place::new("peers-odd");
        let mut directory = PeersFile::new(Some(place.0.clone()));
        assert!(!directory.refresh());
        let large = File::create(place.file()).unwrap();
        large.set_len(SIZE_MAX + 1).unwrap();
        let error = read(&place.file()).unwrap_err();
        assert_eq!(error.to_string(), "longer than 16 MiB");
        let pipe = std::ffi::CString::new(place.0.join("pipe").to_str().unwrap()).unwrap();
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        // Opening a FIFO returns at once.
        assert_eq!(
            read(&place.0.join("pipe")).unwrap_err().to_string(),
            "not a regular file"
        );
        let mut none = PeersFile::new(None);
        assert!(!none.refresh());
    }
}
