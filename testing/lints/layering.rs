//! Allowed dependencies of crates and modules.
//!
//! ```text
//!   crates        libraries/* -> exports -> bmi-method -+-> boundary -> mx-sys -> ports/* --> mx-proto <- mx-sim    Cargo.toml
//!                             `-> myriexpress-api ------'                            `------> libfabric-sys <- libfabric-fake
//!   ports         local, tcp -> base    rdm, dgram -> base, fabric -> base    none on another, none on mx-sys
//!   in src and myriexpress
//!                 a module uses its group and those above      crate:: paths, lib.rs
//!   mx-proto      no unsafe, no socket, clock, thread, C       std paths
//! ```

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns all Rust files below a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Returns a file's code without comments and without the tests at its end.
fn code(path: &Path) -> String {
    let text = read(path);
    let end = text.find("#[cfg(test)]\nmod ").unwrap_or(text.len());
    text[..end]
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the modules named right after each `crate::`, including groups in braces.
fn used_modules(code: &str) -> Vec<String> {
    let mut used = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        // `$crate::` in a macro counts, too; `some_crate::` does not.
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => used.push(identifier(rest)),
            Some(group) => used.extend(top_level(group).iter().map(|part| identifier(part))),
        }
    }
    used
}

/// Splits `a::{b, c}, d}` at the commas of the outermost level.
fn top_level(group: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => parts.push(String::new()),
            _ => {}
        }
        parts.last_mut().unwrap().push(c);
    }
    parts
}

fn identifier(text: &str) -> String {
    let text = text.trim_start_matches([',', ' ', '\n']);
    text.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}

/// Returns the modules of `lib.rs`, each with the number of its group; an empty line separates
/// groups.
fn module_groups(src: &Path) -> HashMap<String, usize> {
    let mut groups = HashMap::new();
    let mut group = 0;
    for line in read(&src.join("lib.rs")).lines() {
        if line.is_empty() {
            group += 1;
        }
        let Some(line) = line.strip_suffix(';') else {
            continue;
        };
        let line = line.strip_prefix("pub").unwrap_or(line);
        let line = line.strip_prefix("(crate)").unwrap_or(line);
        if let Some(module) = line.trim_start().strip_prefix("mod ") {
            groups.insert(module.to_owned(), group);
        }
    }
    groups
}

#[test]
fn a_module_uses_only_its_group_and_those_above_it_in_lib_rs() {
    for src in ["src", "myriexpress/src"] {
        check_groups(&crate::root().join(src));
    }
}

fn check_groups(src: &Path) {
    let place = module_groups(src);
    let mut checked = 0;
    for file in sources(src) {
        let relative = file.strip_prefix(src).unwrap();
        let first = relative.iter().next().unwrap().to_str().unwrap();
        let module = first.trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let own = place.get(module).copied();
        let own = own.unwrap_or_else(|| panic!("{first} is not a module of lib.rs"));
        for used in used_modules(&code(&file)) {
            let Some(&other) = place.get(used.as_str()) else {
                // A macro or a re-export at the root.
                continue;
            };
            assert!(
                other <= own,
                "{} uses {used}, which stands below {module}",
                relative.display()
            );
            checked += 1;
        }
    }
    assert!(checked > 20, "{}: only {checked} uses found", src.display());
}

/// Returns the names in one section of a manifest.
fn section(manifest: &str, name: &str) -> Vec<String> {
    let header = format!("[{name}]");
    let lines = manifest
        .lines()
        .skip_while(|line| line.trim() != header)
        .skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn crates_depend_one_way() {
    const OURS: [&str; 14] = [
        "bmi-exports",
        "bmi-method",
        "bmi-mx",
        "bmi-mx-standalone",
        "mx-boundary",
        "mx-reserve",
        "myriexpress",
        "myriexpress-api",
        "mx-sys",
        "mx-port-",
        "mx-sim",
        "mx-proto",
        "libfabric-sys",
        "libfabric-fake",
    ];
    /// Crates that a port over a fabric may use.
    const FABRIC: [&str; 5] = [
        "mx-port-base",
        "mx-port-fabric",
        "mx-proto",
        "mx-reserve",
        "libfabric-sys",
    ];
    let allowed: [(&str, &[&str]); 25] = [
        (
            "libraries/bmi_mx",
            &["bmi-exports", "bmi-method", "mx-sys", "mx-system-calls"],
        ),
        (
            "libraries/bmi_mx_standalone",
            &["bmi-exports", "bmi-method", "mx-sys", "mx-system-calls"],
        ),
        (
            "libraries/exports",
            &["bmi-method", "mx-boundary", "mx-sys"],
        ),
        ("libraries/boundary", &["mx-sys"]),
        (
            "libraries/myriexpress",
            &["myriexpress-api", "mx-sys", "mx-system-calls"],
        ),
        // The syntax of addresses comes from the method.
        (
            "libraries/na_mx",
            &[
                "bmi-method",
                "mx-boundary",
                "mx-proto",
                "mx-sys",
                "mx-system-calls",
            ],
        ),
        ("libraries/reserve", &["mx-port-base", "mx-proto"]),
        ("libraries/system_calls", &[]),
        (".", &["mx-boundary", "mx-sys", "mx-proto"]),
        ("myriexpress", &["mx-boundary", "mx-sys", "mx-proto"]),
        // mx-sys knows the ports over libfabric, but not libfabric.
        ("mx-sys", &["mx-proto", "mx-port-", "mx-reserve"]),
        ("ports/base", &["mx-proto"]),
        (
            "ports/fabric",
            &["mx-port-base", "mx-proto", "libfabric-sys"],
        ),
        ("ports/local", &["mx-port-base", "mx-proto", "mx-reserve"]),
        ("ports/tcp", &["mx-port-base", "mx-proto", "mx-reserve"]),
        ("libfabric-sys", &[]),
        // No shipped crate depends on this one.
        ("testing/libfabric-fake", &["libfabric-sys"]),
        ("testing/sim", &["mx-proto"]),
        ("mx-proto", &[]),
        ("testing/fuzz", &["mx-proto", "mx-sim"]),
        // Calls the ops table through the C interface, as a host does; libfabric is measured as a
        // reference.
        ("bench", &["bmi_host", "libfabric-sys"]),
        // The layouts of the C interface, written a second time.
        ("testing/host", &[]),
        // Pure bookkeeping and programs, and a binary that calls the ops table as a host does.
        ("testing/torture", &["bmi_host", "mx-sim"]),
        (
            "programs/mx_info",
            &["mx-sys", "mx-port-rdm", "mx-proto", "libfabric-sys"],
        ),
        // The header generator knows only text.
        ("mk/gen_header", &[]),
    ];
    // A name that ends with a hyphen stands for all that begin with it.
    let has = |list: &[&str], name: &str| {
        let is =
            |known: &&str| name == *known || (known.ends_with('-') && name.starts_with(*known));
        list.iter().any(is)
    };
    let check = |directory: &Path, allowed: &[&str]| {
        let manifest = read(&crate::root().join(directory).join("Cargo.toml"));
        for name in section(&manifest, "dependencies") {
            let fine = !has(&OURS, &name) || has(allowed, &name);
            assert!(fine, "{} depends on {name}", directory.display());
        }
    };
    for (directory, allowed) in allowed {
        check(Path::new(directory), allowed);
    }
    for path in port_crates() {
        let directory = path.strip_prefix(crate::root()).unwrap();
        if !allowed
            .iter()
            .any(|(known, _)| Path::new(known) == directory)
        {
            check(directory, &FABRIC);
        }
    }
}

/// Returns the directories in `ports/`: the ports, and the crates that they share.
fn port_crates() -> Vec<PathBuf> {
    let entries = fs::read_dir(crate::root().join("ports")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.is_dir()).collect()
}

#[test]
fn a_ports_tests_need_no_other_port_and_no_shim() {
    for path in port_crates() {
        let manifest = path.join("Cargo.toml");
        for name in section(&read(&manifest), "dev-dependencies") {
            let fine = ["libfabric-fake", "mx-sim"].contains(&name.as_str());
            assert!(fine, "{} tests with {name}", manifest.display());
        }
    }
}

/// The environment of an elevated process belongs to its caller: code that reads it has to know
/// that.
#[test]
fn only_settings_and_libfabrics_ports_read_the_environment() {
    const READERS: [&str; 3] = [
        "mx-sys/src/settings.rs",
        "libfabric-sys/src/environment.rs",
        // Runs after libfabric has been loaded, which an elevated process does not do.
        "ports/rdm/src/plan/mod.rs",
    ];
    let mut directories: Vec<_> = ["src", "mx-sys/src", "myriexpress/src", "libfabric-sys/src"]
        .map(PathBuf::from)
        .to_vec();
    for several in ["ports", "libraries", "programs"] {
        for entry in fs::read_dir(crate::root().join(several)).unwrap() {
            let path = entry.unwrap().path().join("src");
            directories.extend(path.is_dir().then_some(path));
        }
    }
    let mut readers: Vec<_> = directories
        .iter()
        .flat_map(|directory| sources(&crate::root().join(directory)))
        .filter(|file| code(file).contains("env::var"))
        .map(|file| file.strip_prefix(crate::root()).unwrap().to_owned())
        .collect();
    readers.sort();
    let mut expected = READERS.map(PathBuf::from);
    expected.sort();
    assert_eq!(readers, expected);
}

#[test]
fn mx_proto_is_pure() {
    let lib = read(&crate::root().join("mx-proto/src/lib.rs"));
    assert!(lib.contains("#![forbid(unsafe_code)]"));
    const FORBIDDEN: [&str; 12] = [
        "std::net",
        "std::thread",
        "std::sync",
        "std::os",
        "std::fs",
        "std::io",
        "std::process",
        "std::env",
        "libc",
        "parking_lot",
        "SystemTime",
        "time::Instant::now",
    ];
    for file in sources(&crate::root().join("mx-proto/src")) {
        let code = code(&file);
        for forbidden in FORBIDDEN {
            assert!(
                !code.contains(forbidden),
                "{} uses {forbidden}",
                file.display()
            );
        }
    }
}

#[test]
fn paths_are_found_in_every_form() {
    let code = "use crate::a::b;\nuse crate::{c, d::{e, f}, self as g};\n crate::h::i(); \
                $crate::j!(); other_crate::k();";
    assert_eq!(used_modules(code), ["a", "c", "d", "self", "h", "j"]);
}
