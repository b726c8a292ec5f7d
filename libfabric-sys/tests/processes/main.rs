//! The effects of loading on a process. Each case runs in a process of its own.
//!
//! ```text
//!   no argument:    start the program with the name of each case, and look at how it ends
//!   --case NAME:    run that case; a panic ends the process with an error
//! ```
//!
//! The usual harness is not used, because its threads would share signals, environment and
//! libraries. The real library is that of the system, or `MX_LIBFABRIC`. Without one, the cases
//! that need it print that and are skipped; the others still run.

#[path = "../common/mod.rs"]
mod common;
mod queries;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use common::{Scratch, can_compile, is_mapped};
use libfabric_sys::{ENVIRONMENT, Library, LoadError};
use queries::*;

macro_rules! cases {
    ($($name:ident)+) => {
        /// All cases.
        const CASES: &[(&str, fn())] = &[$((stringify!($name), $name)),+];
    };
}

cases! {
    nothing_is_loaded_until_it_is_asked_for
    loading_and_querying_leave_signals_alone
    the_real_library_leaves_signals_alone
    the_environment_is_set_unless_it_was
    the_variable_chooses_the_library
    an_absent_library_is_looked_for_again
    a_useless_library_is_remembered
    threads_that_load_at_once_get_the_same
    the_real_library_lists_providers
    hints_choose_the_provider
    an_offer_can_be_kept
    a_message_goes_from_endpoint_to_endpoint
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name] = &arguments[..]
        && flag == "--case"
    {
        let (_, case) = CASES
            .iter()
            .find(|(known, _)| known == name)
            .expect("a known case");
        case();
        return ExitCode::SUCCESS;
    }
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let itself = std::env::current_exe().expect("a process knows its file");
    let mut failed = 0;
    for (name, _) in CASES
        .iter()
        .filter(|(name, _)| filter.is_none_or(|it| name.contains(it)))
    {
        let output = Command::new(&itself)
            .args(["--case", name])
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout);
        if output.status.success() {
            let skipped = text.contains("not tested:");
            let verdict = if skipped { "NOT TESTED" } else { "ok" };
            println!("test {name} ... {verdict}");
            print!("{text}");
        } else {
            failed += 1;
            let errors = String::from_utf8_lossy(&output.stderr);
            println!("test {name} ... FAILED ({})\n{text}{errors}", output.status);
        }
    }
    println!("processes: {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Returns the real library. Prints a line if there is none.
fn real() -> Option<&'static Library> {
    match Library::get() {
        Ok(library) => Some(library),
        Err(error @ LoadError::NotFound { .. }) => {
            println!("  not tested: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn nothing_is_loaded_until_it_is_asked_for() {
    assert!(
        !is_mapped("libfabric"),
        "libfabric is in a process that did not ask"
    );
    assert!(!is_mapped("libpsm"));
    if real().is_some() {
        assert!(is_mapped("libfabric"), "the look at the maps finds nothing");
    }
}

fn loading_and_querying_leave_signals_alone() {
    if !can_compile() {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.libfabric("libfabric.so.1", 1, 17);
    let before = dispositions();
    let library = Library::load(&path).expect("it has all six");
    assert_eq!(dispositions(), before, "after loading");
    library
        .query(None, None, 0, None)
        .expect_err("it has no providers");
    assert_eq!(dispositions(), before, "after the first query");
    library
        .query(None, None, 0, None)
        .expect_err("it has no providers");
    // The second query is not guarded, and shows that the library does what the guard prevents.
    assert_ne!(
        dispositions(),
        before,
        "the library sets a handler in every query"
    );
}

fn the_real_library_leaves_signals_alone() {
    let before = dispositions();
    let Some(library) = real() else { return };
    assert_eq!(dispositions(), before, "after loading");
    library.query(None, None, 0, None).expect("some provider");
    assert_eq!(dispositions(), before, "after the first query");
}

/// Returns the handler and the flags of every signal.
fn dispositions() -> Vec<(usize, i32)> {
    let read = |signal| {
        // SAFETY: all zero is a disposition.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: reads only.
        unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
        // The C library adds a flag to every disposition that was set.
        (action.sa_sigaction, action.sa_flags & !0x0400_0000)
    };
    (1..=64).map(read).collect()
}

fn the_environment_is_set_unless_it_was() {
    let (given, _) = ENVIRONMENT[0];
    // SAFETY: the only thread of this process.
    unsafe { std::env::set_var(given, "7") };
    for (name, _) in &ENVIRONMENT[1..] {
        // SAFETY: the only thread of this process.
        unsafe { std::env::remove_var(name) };
    }
    // An attempt to load is enough to set the environment.
    Library::load(&PathBuf::from("/nonexistent")).expect_err("there is no such file");
    assert_eq!(std::env::var(given).as_deref(), Ok("7"));
    for (name, value) in &ENVIRONMENT[1..] {
        assert_eq!(std::env::var(name).as_deref(), Ok(*value), "{name}");
    }
}

fn choose(path: &Path) {
    // SAFETY: the only thread of this process.
    unsafe { std::env::set_var("MX_LIBFABRIC", path) };
}

fn the_variable_chooses_the_library() {
    if !can_compile() {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.libfabric("libchosen.so", 1, 42);
    choose(&path);
    let library = Library::get().expect("it has all six");
    assert_eq!(library.version(), (1, 42));
    assert_eq!(library.path(), Some(&*path));
    // A library remains loaded.
    choose(&scratch.path("another"));
    assert_eq!(Library::get().expect("it is loaded").version(), (1, 42));
}

fn an_absent_library_is_looked_for_again() {
    if !can_compile() {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("libfabric.so.1");
    choose(&path);
    for _ in 0..2 {
        assert!(matches!(Library::get(), Err(LoadError::NotFound { .. })));
    }
    scratch.libfabric("libfabric.so.1", 1, 17);
    assert_eq!(Library::get().expect("now it is there").version(), (1, 17));
}

fn a_useless_library_is_remembered() {
    if !can_compile() {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("libfabric.so.1");
    std::fs::write(&path, "text").expect("the file can be written");
    choose(&path);
    let first = Library::get().expect_err("it is text");
    assert!(matches!(first, LoadError::Unusable { .. }), "{first:?}");
    // Even when the file has become better: users who install another library name it or restart.
    std::fs::remove_file(&path).expect("the file can be removed");
    scratch.libfabric("libfabric.so.1", 1, 17);
    assert_eq!(Library::get().expect_err("remembered"), first);
    let other = scratch.libfabric("libother.so", 1, 18);
    choose(&other);
    assert_eq!(
        Library::get().expect("another file, another try").version(),
        (1, 18)
    );
}

fn threads_that_load_at_once_get_the_same() {
    if !can_compile() {
        return;
    }
    let scratch = Scratch::new();
    choose(&scratch.libfabric("libfabric.so.1", 1, 17));
    let addresses: Vec<usize> = std::thread::scope(|scope| {
        let load = || std::ptr::from_ref(Library::get().expect("it has all six")).addr();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    assert!(addresses.iter().all(|address| *address == addresses[0]));
}
