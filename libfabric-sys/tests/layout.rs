//! Every struct, member, signature and constant of `abi`, compared with the installed headers.
//!
//! ```text
//!   abi's records --> probe.c   which of the later ones do these headers have?   cc -fsyntax-only
//!                 --> layout.c  prints sizes, offsets, values; are the types the same?   cc, run
//!                                    |
//!                 compared  <--------'
//! ```
//!
//! The headers are those in `LIBFABRIC_INCLUDE`, or else in `/usr/include`. Without headers or a C
//! compiler, the test prints that nothing was compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use libfabric_sys::abi::layout::{Extent, Layout, Member, Presence};
use libfabric_sys::abi::{ALL_LAYOUTS, CONSTANTS};

/// In this order, because `fi_domain.h` refers to structs that `fi_eq.h` defines.
const HEADERS: [&str; 7] = [
    "rdma/fabric.h",
    "rdma/fi_eq.h",
    "rdma/fi_domain.h",
    "rdma/fi_endpoint.h",
    "rdma/fi_cm.h",
    "rdma/fi_rma.h",
    "rdma/fi_tagged.h",
];

/// Rust number types that are enumerations in C.
const ENUMS: [&str; 8] = [
    "fi_av_type",
    "fi_progress",
    "fi_threading",
    "fi_resource_mgmt",
    "fi_ep_type",
    "fi_cq_format",
    "fi_wait_obj",
    "fi_cq_wait_cond",
];

#[test]
fn every_layout_signature_and_constant_is_that_of_the_headers() {
    let include = std::env::var_os("LIBFABRIC_INCLUDE").unwrap_or_else(|| "/usr/include".into());
    let include = PathBuf::from(include);
    if !include.join(HEADERS[0]).exists() {
        println!(
            "no {} in {}: compared nothing",
            HEADERS[0],
            include.display()
        );
        return;
    }
    if Command::new(compiler()).arg("--version").output().is_err() {
        println!("no C compiler ({}): compared nothing", compiler());
        return;
    }
    let dir =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("layout-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory for the C programs");
    let absent = absent_names(&include, &dir);
    let theirs = measure(&include, &dir, &absent);
    std::fs::remove_dir_all(&dir).expect("the directory can be removed");

    let version = (
        theirs.numbers["version major"],
        theirs.numbers["version minor"],
    );
    let mut wrong = Vec::new();
    compare_presence(version, &absent, &mut wrong);
    for layout in ALL_LAYOUTS.into_iter().flatten() {
        compare_layout(layout, &absent, &theirs, &mut wrong);
    }
    let mut constants = 0;
    for constant in CONSTANTS
        .iter()
        .filter(|constant| !absent.contains(constant.name))
    {
        constants += 1;
        expect(&theirs, constant.name, constant.value, &mut wrong);
    }
    assert!(
        wrong.is_empty(),
        "with the headers of {version:?}:\n{}",
        wrong.join("\n")
    );
    let layouts = ALL_LAYOUTS.iter().map(|file| file.len()).sum::<usize>();
    println!(
        "compared with libfabric {}.{} in {}: {layouts} structs, {} members, {constants} constants; \
         not in these headers: {absent:?}",
        version.0,
        version.1,
        include.display(),
        theirs.alike.len(),
    );
    assert!(layouts > 30 && constants > 100, "the records are not empty");
}

fn compare_presence(version: (u64, u64), absent: &BTreeSet<String>, wrong: &mut Vec<String>) {
    let mut check = |name: String, presence: Presence| {
        // Between the two releases it is not recorded when a name was added.
        let expected = match presence {
            Presence::Always => true,
            Presence::Later if version <= (1, 17) => false,
            Presence::Later if version >= (2, 6) => true,
            Presence::Earlier if version <= (1, 17) => true,
            Presence::Earlier if version >= (2, 6) => false,
            Presence::Later | Presence::Earlier => return,
        };
        if expected == absent.contains(&name) {
            wrong.push(format!("{name} is recorded as {presence:?}"));
        }
    };
    for layout in ALL_LAYOUTS.into_iter().flatten() {
        for member in layout.members {
            check(full_name(layout, member), member.presence);
        }
    }
    for constant in CONSTANTS {
        check(constant.name.to_owned(), constant.presence);
    }
}

fn compare_layout(
    layout: &Layout,
    absent: &BTreeSet<String>,
    theirs: &Measured,
    wrong: &mut Vec<String>,
) {
    let name = layout.name;
    expect(theirs, &format!("{name} align"), layout.align as u64, wrong);
    for member in layout.members {
        let full = full_name(layout, member);
        if absent.contains(&full) {
            continue;
        }
        expect(
            theirs,
            &format!("{full} offset"),
            member.offset as u64,
            wrong,
        );
        let nested = ALL_LAYOUTS
            .into_iter()
            .flatten()
            .find(|other| other.name == member.ty);
        let size = nested.map_or(member.size, |nested| size_there(nested, absent));
        expect(theirs, &format!("{full} size"), size as u64, wrong);
        if !theirs.alike[&full] {
            wrong.push(format!("{full} is not of type {}", member.ty));
        }
    }
    let size = theirs.numbers[&format!("{name} size")];
    let right = match layout.extent {
        Extent::Whole => size == size_there(layout, absent) as u64,
        Extent::Prefix => size >= layout.size as u64,
    };
    if !right {
        wrong.push(format!(
            "{name} has {size} bytes there, {} here",
            layout.size
        ));
    }
}

/// Returns the length of a struct of ours without the absent members: the offset of the first of
/// them, in the struct itself or in the struct that is its last member.
fn size_there(layout: &Layout, absent: &BTreeSet<String>) -> usize {
    if let Some(member) = layout
        .members
        .iter()
        .find(|member| absent.contains(&full_name(layout, member)))
    {
        return member.offset;
    }
    let last = layout.members.last().expect("no struct is empty");
    let nested = ALL_LAYOUTS
        .into_iter()
        .flatten()
        .find(|other| other.name == last.ty);
    layout.size - nested.map_or(0, |nested| nested.size - size_there(nested, absent))
}

fn expect(theirs: &Measured, what: &str, ours: u64, wrong: &mut Vec<String>) {
    match theirs.numbers.get(what) {
        Some(&theirs) if theirs == ours => {}
        theirs => wrong.push(format!("{what}: {theirs:?} there, {ours} here")),
    }
}

/// The output of the C program.
#[derive(Default)]
struct Measured {
    /// Sizes, offsets and values, by name.
    numbers: BTreeMap<String, u64>,
    /// Whether the type of each member is the same as ours.
    alike: BTreeMap<String, bool>,
}

/// Returns the later and earlier names that these headers do not have: compiles a program in which
/// each name has a line of its own, and reads the lines of the errors.
fn absent_names(include: &Path, dir: &Path) -> BTreeSet<String> {
    let mut program = includes();
    let mut on_line = BTreeMap::new();
    let mut probe = |name: String, expression: String| {
        let number = on_line.len();
        writeln!(
            program,
            "unsigned long long probe_{number}(void) {{ return {expression}; }}"
        )
        .expect("writing to a string");
        on_line.insert(program.lines().count(), name);
    };
    for layout in ALL_LAYOUTS.into_iter().flatten() {
        for member in layout
            .members
            .iter()
            .filter(|it| it.presence != Presence::Always)
        {
            let (name, field) = (layout.name, plain(member.name));
            probe(
                full_name(layout, member),
                format!("offsetof(struct {name}, {field})"),
            );
        }
    }
    for constant in CONSTANTS
        .iter()
        .filter(|it| it.presence != Presence::Always)
    {
        probe(
            constant.name.to_owned(),
            format!("(unsigned long long) ({})", constant.name),
        );
    }
    let source = dir.join("probe.c");
    std::fs::write(&source, &program).expect("the probe can be written");
    let output = Command::new(compiler())
        .args(["-fsyntax-only", "-w", "-I"])
        .arg(include)
        .arg(&source)
        .env("LC_ALL", "C")
        .output()
        .expect("the compiler runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    let prefix = format!("{}:", source.display());
    let mut absent = BTreeSet::new();
    for message in messages.lines().filter(|line| line.contains("error:")) {
        let line = message
            .strip_prefix(&prefix)
            .and_then(|rest| rest.split(':').next())
            .and_then(|number| number.parse::<usize>().ok())
            .and_then(|number| on_line.get(&number));
        let name = line.unwrap_or_else(|| panic!("the headers do not compile: {messages}"));
        absent.insert(name.clone());
    }
    assert_eq!(output.status.success(), absent.is_empty(), "{messages}");
    absent
}

fn measure(include: &Path, dir: &Path, absent: &BTreeSet<String>) -> Measured {
    let mut body = String::new();
    let mut line = |text: String| {
        body.push_str(&text);
        body.push('\n');
    };
    let number = |name: &str, value: String| {
        format!("  printf(\"n {name}=%llu\\n\", (unsigned long long) ({value}));")
    };
    line(number("version major", "FI_MAJOR_VERSION".to_owned()));
    line(number("version minor", "FI_MINOR_VERSION".to_owned()));
    for layout in ALL_LAYOUTS.into_iter().flatten() {
        let name = layout.name;
        line(number(
            &format!("{name} size"),
            format!("sizeof(struct {name})"),
        ));
        line(number(
            &format!("{name} align"),
            format!("_Alignof(struct {name})"),
        ));
        for member in layout.members {
            let full = full_name(layout, member);
            if absent.contains(&full) {
                continue;
            }
            let field = plain(member.name);
            let access = format!("((struct {name} *) 0)->{field}");
            line(number(
                &format!("{full} offset"),
                format!("offsetof(struct {name}, {field})"),
            ));
            line(number(&format!("{full} size"), format!("sizeof({access})")));
            // Of an operation that is not called, only size and offset are compared.
            let alike = if member.ty.is_empty() {
                "1".to_owned()
            } else {
                format!(
                    "__builtin_types_compatible_p(__typeof__({access}), {})",
                    c_type(member.ty)
                )
            };
            line(format!("  printf(\"t {full}=%d\\n\", {alike});"));
        }
    }
    for constant in CONSTANTS
        .iter()
        .filter(|constant| !absent.contains(constant.name))
    {
        line(number(constant.name, constant.name.to_owned()));
    }
    let program = format!("{}int main(void) {{\n{body}  return 0;\n}}\n", includes());
    let (source, binary) = (dir.join("layout.c"), dir.join("layout"));
    std::fs::write(&source, program).expect("the program can be written");
    let output = Command::new(compiler())
        .args(["-w", "-I"])
        .arg(include)
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output()
        .expect("the compiler runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let output = Command::new(&binary).output().expect("the program runs");
    assert!(output.status.success());
    let mut measured = Measured::default();
    for line in String::from_utf8(output.stdout).expect("ASCII").lines() {
        let (kind, rest) = line.split_at(2);
        let (name, value) = rest.split_once('=').expect("a name and a value");
        match kind {
            "n " => {
                let value = value.parse().expect("a number");
                measured.numbers.insert(name.to_owned(), value);
            }
            "t " => {
                measured.alike.insert(name.to_owned(), value == "1");
            }
            _ => panic!("unexpected: {line}"),
        }
    }
    measured
}

/// Returns the C name of a type.
fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(signature) = rust.strip_prefix("fn(") {
        let (arguments, result) = signature.split_once(")->").expect("a result");
        let arguments: Vec<String> = arguments
            .split(',')
            .map(str::trim)
            .filter(|argument| !argument.is_empty())
            .map(c_type)
            .collect();
        return format!("{} (*)({})", c_type(result), arguments.join(", "));
    }
    if let Some(array) = rust.strip_prefix('[') {
        let (element, count) = array
            .trim_end_matches(']')
            .split_once(';')
            .expect("a length");
        return format!("{}[{}]", c_type(element), count.trim());
    }
    if let Some(target) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(target));
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        return format!("{} const *", c_type(target));
    }
    match rust {
        "c_void" => "void".to_owned(),
        "c_char" => "char".to_owned(),
        "c_int" => "int".to_owned(),
        "u8" => "uint8_t".to_owned(),
        "u32" => "uint32_t".to_owned(),
        "u64" => "uint64_t".to_owned(),
        "usize" => "size_t".to_owned(),
        "isize" => "ssize_t".to_owned(),
        "fi_addr_t" => "fi_addr_t".to_owned(),
        name if ENUMS.contains(&name) => format!("enum {name}"),
        name => format!("struct {name}"),
    }
}

#[test]
fn types_are_spelled_as_c_spells_them() {
    assert_eq!(c_type("*mut *mut c_void"), "void * *");
    assert_eq!(c_type("*const iovec"), "struct iovec const *");
    assert_eq!(c_type("[*mut c_void; 4]"), "void *[4]");
    assert_eq!(
        c_type("fn(*mut fid_ep,fi_ep_type,)->isize"),
        "ssize_t (*)(struct fid_ep *, enum fi_ep_type)"
    );
}

fn full_name(layout: &Layout, member: &Member) -> String {
    format!("{}.{}", layout.name, plain(member.name))
}

fn plain(name: &'static str) -> &'static str {
    name.strip_prefix("r#").unwrap_or(name)
}

fn includes() -> String {
    let mut text =
        "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n"
            .to_owned();
    for header in HEADERS {
        writeln!(text, "#include <{header}>").expect("writing to a string");
    }
    text
}

fn compiler() -> String {
    std::env::var("CC").unwrap_or_else(|_| "cc".to_owned())
}
