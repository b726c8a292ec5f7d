//! Small C libraries with all or some of the properties of a libfabric.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A directory that is removed when the test has passed.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("libraries-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Compiles a shared object; `versions` is its version script, or empty.
    pub(crate) fn compile(
        &self,
        name: &str,
        source: &str,
        versions: &str,
        more: &[&str],
    ) -> PathBuf {
        let (c, map, object) = (
            self.path("source.c"),
            self.path("versions"),
            self.path(name),
        );
        std::fs::write(&c, source).expect("the source can be written");
        let mut command = Command::new(compiler());
        command
            .args(["-shared", "-fPIC", "-w", "-o"])
            .arg(&object)
            .arg(&c);
        if !versions.is_empty() {
            std::fs::write(&map, versions).expect("the version script can be written");
            command.arg(format!("-Wl,--version-script={}", map.display()));
        }
        let output = command.args(more).output().expect("the compiler runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        object
    }

    /// Compiles a libfabric of a version, with all six symbols and no providers.
    pub(crate) fn libfabric(&self, name: &str, major: u32, minor: u32) -> PathBuf {
        self.compile(name, &source(major, minor), VERSIONS, &[])
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// Returns the source of six functions. The constructor sets a handler of SIGUSR1 and each query
/// one of SIGUSR2, as PSM does with other signals; every query returns -61, "no data".
pub(crate) fn source(major: u32, minor: u32) -> String {
    format!(
        "#include <signal.h>
         #include <stddef.h>
         static void handler(int number) {{ (void) number; }}
         __attribute__((constructor)) static void start(void) {{ signal(SIGUSR1, handler); }}
         unsigned fi_version(void) {{ return {major} << 16 | {minor}; }}
         int fi_getinfo(unsigned v, const char *n, const char *s, unsigned long f, void *h, void **i)
         {{ signal(SIGUSR2, handler); return -61; }}
         void fi_freeinfo(void *info) {{ }}
         void *fi_dupinfo(const void *info) {{ return NULL; }}
         int fi_fabric(void *attr, void **fabric, void *context) {{ return -38; }}
         const char *fi_strerror(int number) {{ return number == 259 ? \"error available\" : NULL; }}
        "
    )
}

/// The version script of 1.17, reduced to the six symbols.
pub(crate) const VERSIONS: &str = "FABRIC_1.0 { global: fi_version; fi_strerror; local: *; };
    FABRIC_1.1 { global: fi_fabric; } FABRIC_1.0;
    FABRIC_1.2 { } FABRIC_1.1;
    FABRIC_1.3 { global: fi_getinfo; fi_freeinfo; fi_dupinfo; } FABRIC_1.2;";

/// Returns whether there is a C compiler; prints a line if there is none.
pub(crate) fn can_compile() -> bool {
    let found = Command::new(compiler()).arg("--version").output().is_ok();
    if !found {
        println!("  not tested: no C compiler ({})", compiler());
    }
    found
}

fn compiler() -> String {
    std::env::var("CC").unwrap_or_else(|_| "cc".to_owned())
}

/// Returns whether a file is mapped into the process whose name begins with `part`.
#[allow(dead_code, reason = "only one of the two users needs it")]
pub(crate) fn is_mapped(part: &str) -> bool {
    let maps = std::fs::read_to_string(Path::new("/proc/self/maps")).expect("Linux has it");
    maps.lines().any(|line| {
        line.rsplit('/')
            .next()
            .is_some_and(|file| file.starts_with(part))
    })
}
