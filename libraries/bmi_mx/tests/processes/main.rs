//! An elevated process, which has more rights than its caller: its environment, set by the caller, must not open files,
//! load code or choose peers. For both libraries, because this package's tests can build them.
//!
//! ```text
//!   this test, root --> a copy of embedder.c of mode 4755 ---> run as CALLER:  its log, and whether planted.c ran
//!                       its owner: root, or another user       run as root:    for comparison, not elevated
//! ```
//!
//! Without the test harness, which does not report cases that cannot be tested.

#[path = "../../../../testing/sim/fixtures/cases.rs"]
mod cases;
#[path = "../../../../testing/sim/fixtures/exported.rs"]
mod exported;

use bmi_method::config;
use mx_sys::Settings;
use mx_sys::tunable::ValueKind;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// User ids that no machine has: one that starts programs, and one that owns some.
const CALLER: u32 = 65_531;
const OWNER: u32 = 65_530;

/// Contents of a file that only root can read. As a peers file it has two errors, and the name that embedder.c asks
/// for.
const SECRETS: &str = "root:$y$topsecret:1:0:99999::\n10.0.0.1 topsecret:2\n10.0.0.9 listed\n";

type Case = fn(&Place);

const CASES: &[(&str, Case)] = cases::named![
    only_quantities_are_taken_from_a_caller,
    a_caller_does_not_choose_the_level_of_the_log,
    a_file_that_a_caller_names_is_not_read,
    a_warning_about_a_file_has_none_of_its_text,
    planted_code_does_not_run,
    options_of_the_host_are_used,
];

fn main() -> ExitCode {
    // SAFETY: only reads; nix is not among this package's dependencies.
    if unsafe { libc::geteuid() } != 0 {
        println!("NOT TESTED: only root can make a program with more rights than its caller");
        return ExitCode::SUCCESS;
    }
    let directories = [
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
        std::env::temp_dir(),
    ];
    let Some(place) = directories
        .iter()
        .find_map(|directory| Place::new(directory))
    else {
        println!("NOT TESTED: no program in {directories:?} gets its owner's rights (nosuid?)");
        return ExitCode::SUCCESS;
    };
    let cases = CASES.iter().map(|&(name, case)| {
        let place = &place;
        (name.to_owned(), move || case(place))
    });
    cases::run("elevated", cases)
}

/// A directory with programs and files, removed after the tests.
struct Place(PathBuf);

/// A program of [`Place`], by the user it runs as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Program {
    /// Elevated, with root's rights.
    OfRoot,
    /// Elevated, with the rights of [`OWNER`].
    OfOwner,
    /// Run as root, not elevated.
    Plain,
}

const ELEVATED: [Program; 2] = [Program::OfRoot, Program::OfOwner];

/// Outcome of a run.
struct Outcome {
    out: String,
    log: String,
}

impl Place {
    /// Makes the directory and its contents; `None` if programs there do not get their owner's rights.
    fn new(directory: &Path) -> Option<Self> {
        let place = Self(directory.join(format!("elevated-{}", std::process::id())));
        fs::create_dir_all(place.path("marks")).unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes");
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
        let embedder = [
            sources.join("embedder.c"),
            "-I".into(),
            include,
            "-ldl".into(),
        ];
        place.compile("plain", &embedder);
        let mark = format!("-DMARK=\"{}\"", place.path("marks/planted").display());
        let planted = [
            "-shared".into(),
            "-fPIC".into(),
            mark.into(),
            sources.join("planted.c"),
        ];
        // libfabric looks for this end of a name.
        place.compile("marks/planted-fi.so", &planted);
        for (package, name) in LIBRARIES {
            fs::copy(exported::library(package, name), place.path(name)).unwrap();
            fs::set_permissions(place.path(name), Permissions::from_mode(0o755)).unwrap();
        }
        for (name, owner) in [("of_root", 0), ("of_owner", OWNER)] {
            fs::copy(place.path("plain"), place.path(name)).unwrap();
            chown(place.path(name), Some(owner), Some(owner)).unwrap();
            fs::set_permissions(place.path(name), Permissions::from_mode(0o4755)).unwrap();
        }
        fs::write(place.path("secrets"), SECRETS).unwrap();
        for (name, mode) in [("", 0o755), ("marks", 0o777), ("secrets", 0o600)] {
            fs::set_permissions(place.path(name), Permissions::from_mode(mode)).unwrap();
        }
        let expected = [(Program::OfRoot, 0), (Program::OfOwner, OWNER)];
        let works = expected.iter().all(|(program, user)| {
            let out = place.run(*program, BMI, &[], "").map(|outcome| outcome.out);
            out.is_some_and(|out| out == format!("user {user}, elevated 1\ncode 0, listed 0\n"))
        });
        works.then_some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn compile(&self, name: &str, arguments: &[PathBuf]) {
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"]);
        command.arg(self.path(name)).args(arguments);
        assert!(command.status().unwrap().success());
    }

    /// Runs a program with only this environment; `None` if it cannot be started.
    fn run(
        &self,
        program: Program,
        library: &str,
        environment: &[(&str, &str)],
        options: &str,
    ) -> Option<Outcome> {
        let file = match program {
            Program::OfRoot => "of_root",
            Program::OfOwner => "of_owner",
            Program::Plain => "plain",
        };
        let mut command = Command::new(self.path(file));
        command.arg(self.path(library));
        command.args(Some(options).filter(|options| !options.is_empty()));
        command.env_clear().envs(environment.iter().copied());
        if program != Program::Plain {
            command.uid(CALLER).gid(CALLER);
        }
        let output = command.output().ok()?;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Some(Outcome {
            out: text(output.stdout),
            log: text(output.stderr),
        })
    }

    /// Runs a program that has to start.
    fn outcome(&self, program: Program, library: &str, environment: &[(&str, &str)]) -> Outcome {
        self.run(program, library, environment, "").unwrap()
    }

    /// Returns whether planted code ran since the last call.
    fn planted_ran(&self) -> bool {
        fs::remove_file(self.path("marks/planted")).is_ok()
    }

    fn text(&self, name: &str) -> String {
        self.path(name).into_os_string().into_string().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const BMI: &str = "libbmi_mx.so";
const MX: &str = "libmyriexpress.so";

/// Packages and file names.
const LIBRARIES: [(&str, &str); 2] = [("bmi-mx", BMI), ("myriexpress", MX)];

impl Outcome {
    fn succeeded(&self) -> bool {
        self.out.contains("\ncode 0, ")
    }

    /// Returns whether a peers file was read.
    fn peers_were_read(&self) -> bool {
        self.out.ends_with(", listed 1\n")
    }

    /// Returns the number of lines that report an ignored variable.
    fn ignored(&self, name: &str) -> usize {
        let says = format!(" {name} ignored: this process has more rights than its caller");
        self.log.matches(&says).count()
    }
}

/// Returns a value that does harm if it is used, except quantities.
fn harmful(name: &str, kind: ValueKind, file: &str) -> String {
    match kind {
        // A larger value would make MX_UNEXPECTED_BYTES too small.
        ValueKind::Bytes(min, _) if name == "BMI_MX_UNEXPECTED_MAX" => min.to_string(),
        ValueKind::Number(_, max)
        | ValueKind::OrZero(_, max)
        | ValueKind::Bytes(_, max)
        | ValueKind::PortNumber(_, max) => max.to_string(),
        ValueKind::Switch => "on".to_owned(),
        ValueKind::Choice(words) => words[words.len() - 1].to_owned(),
        ValueKind::Name | ValueKind::Path => file.to_owned(),
        ValueKind::Formed(..) => "loss=0.75".to_owned(),
    }
}

fn only_quantities_are_taken_from_a_caller(place: &Place) {
    let file = place.text("secrets");
    let bmi = config::tunables().map(|row| (BMI, row.name, row.kind));
    let mx = Settings::mx_rows().map(|row| (MX, row.name, row.kind));
    for (library, name, kind) in bmi.chain(mx) {
        let value = harmful(name, kind, &file);
        let quantity = matches!(
            kind,
            ValueKind::Number(..) | ValueKind::OrZero(..) | ValueKind::Bytes(..)
        );
        for program in ELEVATED {
            let outcome = place.outcome(program, library, &[(name, &value)]);
            let log = &outcome.log;
            assert_eq!(
                outcome.ignored(name),
                usize::from(!quantity),
                "{name}: {log}"
            );
            assert!(!log.contains(&format!("={value}")), "{name}: {log}");
            assert!(!log.contains("topsecret"), "{name}: {log}");
            // No endpoint is opened without a secret that was asked for.
            let opened = name != "MX_SECRET_FILE" || library == MX;
            assert_eq!(outcome.succeeded(), opened, "{name}: {log}");
        }
    }
}

fn a_caller_does_not_choose_the_level_of_the_log(place: &Place) {
    for (library, name) in [(BMI, "BMI_MX_LOG"), (BMI, "MX_LOG"), (MX, "MX_LOG")] {
        let is_chatty = |outcome: &Outcome| {
            let levels = ["INFO", "DEBUG", "TRACE"];
            levels.iter().any(|level| outcome.log.contains(level))
        };
        let plain = place.outcome(Program::Plain, library, &[(name, "trace")]);
        assert!(is_chatty(&plain) && plain.ignored(name) == 0);
        for program in ELEVATED {
            let outcome = place.outcome(program, library, &[(name, "trace")]);
            assert!(!is_chatty(&outcome), "{}", outcome.log);
            assert_eq!(outcome.ignored(name), 1, "{}", outcome.log);
        }
    }
}

fn a_file_that_a_caller_names_is_not_read(place: &Place) {
    let file = place.text("secrets");
    for (_, library) in LIBRARIES {
        for program in ELEVATED {
            let outcome = place.outcome(program, library, &[("MX_PEERS", &file)]);
            assert_eq!(outcome.ignored("MX_PEERS"), 1);
            assert!(!outcome.log.contains(&file), "{}", outcome.log);
            assert!(outcome.succeeded() && !outcome.peers_were_read());
        }
    }
}

fn a_warning_about_a_file_has_none_of_its_text(place: &Place) {
    let file = place.text("secrets");
    for (_, library) in LIBRARIES {
        let outcome = place.outcome(Program::Plain, library, &[("MX_PEERS", &file)]);
        let log = &outcome.log;
        assert!(outcome.peers_were_read(), "{log}");
        assert!(
            log.contains(&format!("{file}:1: the first word is not")),
            "{log}"
        );
        assert!(
            log.contains(&format!("{file}:2: a word after the address")),
            "{log}"
        );
        assert!(
            !log.contains("topsecret") && !log.contains("10.0.0.1"),
            "{log}"
        );
    }
}

fn planted_code_does_not_run(place: &Place) {
    let (library, directory) = (place.text("marks/planted-fi.so"), place.text("marks"));
    let settings = [
        ("MX_LIBFABRIC", library.as_str()),
        ("BMI_MX_LIBRARY", &library),
        ("FI_PROVIDER_PATH", &directory),
        ("FI_PROVIDER", "planted"),
        ("FI_LOG_LEVEL", "trace"),
        ("MX_PROVIDER", "planted"),
    ];
    for setting in settings {
        // Set by the caller, and by the host.
        for (port, options) in [("rdm", ""), ("auto", "MX_PORT=rdm")] {
            let environment = [("MX_PORT", port), setting];
            for program in ELEVATED {
                let outcome = place.run(program, BMI, &environment, options).unwrap();
                assert!(!place.planted_ran(), "{environment:?}");
                let (log, by_host) = (&outcome.log, !options.is_empty());
                assert_eq!(outcome.succeeded(), !by_host, "{environment:?}: {log}");
                let says = log.contains("is not loaded by a process with more rights");
                assert_eq!(says, by_host, "{environment:?}: {log}");
                assert!(!log.contains(&directory), "{log}");
            }
        }
    }
    // If the caller is the process's own user, the first setting is used.
    place.outcome(Program::Plain, BMI, &[("MX_PORT", "rdm"), settings[0]]);
    assert!(place.planted_ran());
    // The third is used where libfabric is installed.
    let plain = place.outcome(Program::Plain, BMI, &[("MX_PORT", "rdm"), settings[2]]);
    let there = !plain.log.contains("libfabric is not available");
    assert_eq!(place.planted_ran(), there, "{}", plain.log);
}

fn options_of_the_host_are_used(place: &Place) {
    let file = place.text("peers");
    fs::write(&file, "10.0.0.9 listed\n").unwrap();
    let options = format!("MX_PEERS={file}");
    for program in ELEVATED {
        let environment = [("MX_PEERS", "/nonexistent/of_caller")];
        let outcome = place.run(program, BMI, &environment, &options).unwrap();
        assert!(outcome.peers_were_read(), "{}", outcome.log);
        assert!(!outcome.log.contains("of_caller"), "{}", outcome.log);
    }
    let secret = place.text("secret");
    fs::write(&secret, "0123456789abcdef").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let environment = [("MX_SECRET_FILE", "/nonexistent/of_caller")];
    let options = format!("MX_SECRET_FILE={secret}");
    let outcome = place.run(Program::OfRoot, BMI, &environment, &options);
    assert!(outcome.unwrap().succeeded());
}
