//! The file with a site's secret, and the check of its owner and mode.
//!
//! ```text
//!   MX_SECRET_FILE --open, no link followed--> fstat: a regular file, ours or root's,
//!                                              of mode 0600 or 0400
//!                  --> 16 to 4096 bytes, one newline at the end apart --> Secret
//! ```
//!
//! Anything else is an error: if a secret is set, no endpoint is opened without it.

use mx_proto::secret::Secret;
use nix::unistd::geteuid;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Legal lengths of a secret, in bytes.
pub const LENGTHS: std::ops::RangeInclusive<usize> = 16..=4096;

/// Legal modes of the file.
pub const MODES: [u32; 2] = [0o600, 0o400];

/// An unusable secret.
#[derive(Debug)]
pub struct SecretError {
    /// Path as given.
    pub path: PathBuf,
    /// Fault of the file.
    pub fault: Fault,
}

/// Faults of a secret's file.
#[derive(Debug)]
pub enum Fault {
    /// The file cannot be read.
    System(io::Error),
    /// The file is a link, a directory, a device or the like.
    NotAFile,
    /// The file belongs to another user, who can write to it.
    Owner {
        /// User id of the owner.
        found: u32,
        /// Legal owner, beside root.
        wanted: u32,
    },
    /// The file has a mode other than [`MODES`].
    Mode(u32),
    /// The file has too few bytes or too many; in the latter case the number is a lower bound.
    Length(usize),
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MX_SECRET_FILE={:?}: ", self.path)?;
        let (least, most) = (LENGTHS.start(), LENGTHS.end());
        match &self.fault {
            Fault::System(error) => write!(f, "cannot be read: {error}"),
            Fault::NotAFile => f.write_str("is not a regular file (links are not followed)"),
            Fault::Owner { found, wanted: 0 } => {
                write!(f, "belongs to user {found}; it has to belong to root")
            }
            Fault::Owner { found, wanted } => {
                write!(
                    f,
                    "belongs to user {found}; it has to belong to user {wanted} or root"
                )
            }
            Fault::Mode(mode) => write!(f, "has mode {mode:04o}; it has to be 0600 or 0400"),
            Fault::Length(found) if *found < *least => {
                write!(f, "has {found} bytes, a secret has {least} to {most}")
            }
            Fault::Length(_) => {
                write!(
                    f,
                    "has more than {most} bytes, a secret has {least} to {most}"
                )
            }
        }
    }
}

impl std::error::Error for SecretError {}

/// Reads the site's secret from a regular file, which must belong to this process's user or root and have one of
/// [`MODES`] and a length in [`LENGTHS`]; links are not followed.
pub fn read(path: &Path) -> Result<Secret, SecretError> {
    let me = geteuid().as_raw();
    read_as(path, me).map_err(|fault| SecretError {
        path: path.to_owned(),
        fault,
    })
}

fn read_as(path: &Path, me: u32) -> Result<Secret, Fault> {
    let file = OpenOptions::new()
        .read(true)
        // Do not follow links or wait for the writer of a FIFO; the standard library adds O_CLOEXEC.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP | libc::ENXIO) => Fault::NotAFile,
            Some(libc::EACCES) => denied(path, me, error),
            _ => Fault::System(error),
        })?;
    // Metadata of the opened file, whatever the path names by now.
    let about = file.metadata().map_err(Fault::System)?;
    if !about.is_file() {
        return Err(Fault::NotAFile);
    }
    if about.uid() != me && about.uid() != 0 {
        return Err(Fault::Owner {
            found: about.uid(),
            wanted: me,
        });
    }
    let mode = about.mode() & 0o7777;
    if !MODES.contains(&mode) {
        return Err(Fault::Mode(mode));
    }
    // Full capacity from the start: a growing vector would leave copies of the secret in memory.
    let most = LENGTHS.end() + 2;
    let mut bytes = Zeroizing::new(Vec::with_capacity(most));
    let mut front = (&file).take(most as u64);
    front.read_to_end(&mut bytes).map_err(Fault::System)?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    if LENGTHS.contains(&bytes.len()) {
        Ok(Secret::new(bytes))
    } else {
        Err(Fault::Length(bytes.len()))
    }
}

/// Returns the fault of an unreadable file: its mode, if it is ours.
fn denied(path: &Path, me: u32, error: io::Error) -> Fault {
    match path.symlink_metadata() {
        Ok(about) if about.is_file() && about.uid() == me => Fault::Mode(about.mode() & 0o7777),
        _ => Fault::System(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_proto::secret::{ProofTranscript, Purpose, Role};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A temporary directory, removed on drop.
    struct Place(PathBuf);

    impl Place {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("mx_secret_{}_{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn file(&self, bytes: &[u8], mode: u32) -> PathBuf {
            let path = self.0.join("secret");
            let _ = fs::remove_file(&path);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const GOOD: &[u8] = b"0123456789abcdef";

    fn is(found: &Secret, expected: &[u8]) -> bool {
        let words = ProofTranscript {
            purpose: Purpose::Introduction,
            caller: b"a",
            called: b"b",
            binding: [0; 2],
        };
        let expected = Secret::new(Zeroizing::new(expected.to_vec()));
        found.verify(Role::Caller, &words, &expected.prove(Role::Caller, &words))
    }

    #[test]
    fn private_own_file_is_read_without_its_last_newline() {
        let place = Place::new();
        for mode in [0o600, 0o400] {
            assert!(is(&read(&place.file(GOOD, mode)).unwrap(), GOOD));
        }
        for (content, secret) in [
            ([GOOD, b"\n"].concat(), GOOD.to_vec()),
            ([GOOD, b"\n\n"].concat(), [GOOD, b"\n"].concat()),
            ([b"\n", GOOD, b" "].concat(), [b"\n", GOOD, b" "].concat()),
            (vec![0; 16], vec![0; 16]),
            (vec![7; 4096], vec![7; 4096]),
            ([vec![7; 4096], vec![b'\n']].concat(), vec![7; 4096]),
        ] {
            assert!(is(&read(&place.file(&content, 0o600)).unwrap(), &secret));
        }
    }

    #[test]
    fn other_errors_name_what_was_found_and_expected() {
        let place = Place::new();
        let says = |path: &Path, expected: &str| {
            let error = read(path).unwrap_err().to_string();
            assert_eq!(error, format!("MX_SECRET_FILE={path:?}: {expected}"));
        };
        says(
            &place.0.join("nothing"),
            "cannot be read: No such file or directory (os error 2)",
        );
        says(
            Path::new(""),
            "cannot be read: No such file or directory (os error 2)",
        );
        let no_file = "is not a regular file (links are not followed)";
        says(&place.0, no_file);
        says(Path::new("/dev/null"), no_file);
        let link = place.0.join("link");
        symlink(place.file(GOOD, 0o600), &link).unwrap();
        says(&link, no_file);
        for mode in [
            0o640, 0o604, 0o660, 0o620, 0o602, 0o610, 0o601, 0o644, 0o700, 0o500, 0o000, 0o200,
            0o100, 0o4600, 0o2600, 0o1600, 0o4400,
        ] {
            let expected = format!("has mode {mode:04o}; it has to be 0600 or 0400");
            says(&place.file(GOOD, mode), &expected);
        }
        for (content, found) in [(&b""[..], 0), (b"\n", 0), (b"0123456789abcde\n", 15)] {
            let expected = format!("has {found} bytes, a secret has 16 to 4096");
            says(&place.file(content, 0o600), &expected);
        }
        for content in [vec![7; 4097], vec![7; 1 << 20], vec![b'\n'; 4098]] {
            let expected = "has more than 4096 bytes, a secret has 16 to 4096";
            says(&place.file(&content, 0o600), expected);
        }
    }

    #[test]
    fn a_pipe_without_a_writer_is_no_file_and_not_waited_for() {
        let place = Place::new();
        let path = place.0.join("pipe");
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a string that ends with 0.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let error = read(&path).unwrap_err();
        assert!(matches!(error.fault, Fault::NotAFile), "{error}");
    }

    #[test]
    fn a_file_of_another_user_is_refused_unless_that_is_root() {
        let place = Place::new();
        let path = place.file(GOOD, 0o600);
        let owner = fs::metadata(&path).unwrap().uid();
        // Read as another user: the result depends on the owner.
        match (owner, read_as(&path, owner + 1)) {
            (0, Ok(secret)) => assert!(is(&secret, GOOD)),
            (0, Err(fault)) => panic!("{fault:?}"),
            (_, Err(Fault::Owner { found, wanted })) => {
                assert_eq!((found, wanted), (owner, owner + 1));
            }
            (_, other) => panic!("{other:?}"),
        }
        let theirs = |found, wanted| {
            let fault = Fault::Owner { found, wanted };
            SecretError {
                path: PathBuf::from("/s"),
                fault,
            }
            .to_string()
        };
        assert_eq!(
            theirs(5, 7),
            "MX_SECRET_FILE=\"/s\": belongs to user 5; it has to belong to user 7 or root"
        );
        assert_eq!(
            theirs(5, 0),
            "MX_SECRET_FILE=\"/s\": belongs to user 5; it has to belong to root"
        );
        if owner == 0 {
            // Root can give the file away.
            std::os::unix::fs::chown(&path, Some(65_533), None).unwrap();
            let error = read(&path).unwrap_err();
            assert!(
                matches!(error.fault, Fault::Owner { found: 65_533, .. }),
                "{error}"
            );
        }
    }
}
