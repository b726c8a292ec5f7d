//! Writes `include/bmi_mx.h` and `include/bmi_mx_standalone.h`.
//!
//! ```text
//!   src/abi/{types,constants}.rs ------------------------+
//!   libraries/exports/src/*.rs                          |
//!     export! { pub unsafe extern "C" fn .. { .. } }     +--> one Rust file for each host --> cbindgen --> header
//!        --> #[unsafe(no_mangle)] pub .. fn .. {}        |
//!   libraries/bmi_mx[_standalone]/src/*.rs               |      its struct bmi_method_addr, not the common one
//!     the same, and bmi_mx_ops: bmi_method_ops           |
//!   cbindgen.toml ---------------------------------------+
//! ```
//!
//! cbindgen reads Rust but does not expand macros, and the exported functions are declared by one
//! (`export!`, which puts the panic guard around each). So their signatures are taken out of it, also for the entries of
//! the table, whose types are the functions' names.
//!
//! Usage: `gen_header ROOT` writes the headers, `gen_header ROOT --check` fails when one that is there
//! differs.

use quote::ToTokens;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use syn::{Attribute, Field, File, Item, ItemFn, ItemStatic, parse_quote};

/// A host, and what its header is called.
struct Host {
    /// The name of its library's folder and, without its extension, of the header.
    header: &'static str,
    /// The host's name.
    name: &'static str,
}

const HOSTS: [Host; 2] = [
    Host {
        header: "bmi_mx",
        name: "the BMI of OrangeFS 2.10",
    },
    Host {
        header: "bmi_mx_standalone",
        name: "the stand-alone BMI 2.8",
    },
];

/// The sources whose types and constants C sees, with every host.
const PLAIN: [&str; 2] = ["src/abi/types.rs", "src/abi/constants.rs"];
/// Sources of a host's own declarations.
const OWN: [&str; 2] = ["abi.rs", "table.rs"];
/// The exports that all hosts have alike.
const EXPORTS: &str = "libraries/exports/src";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gen_header: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let root = PathBuf::from(arguments.next().ok_or("usage: gen_header ROOT [--check]")?);
    let check = match arguments.next().as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => return Err(format!("unknown argument {other:?}").into()),
    };
    HOSTS.iter().try_for_each(|host| write(&root, host, check))
}

fn write(root: &Path, host: &Host, check: bool) -> Result<(), Box<dyn Error>> {
    let header = generate(root, host)?;
    let name = format!("include/{}.h", host.header);
    let path = root.join(&name);
    if !check {
        fs::create_dir_all(root.join("include"))?;
        fs::write(&path, header)?;
        return Ok(());
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    if present == header {
        return Ok(());
    }
    let line = 1 + present
        .lines()
        .zip(header.lines())
        .take_while(|(a, b)| a == b)
        .count();
    Err(format!("{name} differs from the sources from line {line}: run `make header`").into())
}

/// The header's text.
fn generate(root: &Path, host: &Host) -> Result<String, Box<dyn Error>> {
    let source = flatten(root, host)?;
    // cbindgen wants a file. Beside the build's other products, so that nothing else sees it.
    let directory = std::env::temp_dir().join(format!("gen_header-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let file = directory.join("bmi_mx.rs");
    fs::write(&file, source)?;
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml"))?;
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(&file)
        .generate();
    fs::remove_dir_all(&directory)?;
    let mut header = Vec::new();
    bindings?.write(&mut header);
    let header = String::from_utf8(header)?;
    let header = header
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@HEADER@", host.header)
        .replace("@GUARD@", &host.header.to_uppercase())
        .replace("@HOST@", host.name);
    Ok(one_line_comments(&header))
}

/// Comments of one line on one line.
fn one_line_comments(header: &str) -> String {
    let mut out = String::with_capacity(header.len());
    let mut lines = header.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim() == "/**" {
            let indent = &line[..line.len() - 3];
            let text = lines.next().unwrap_or_default();
            if lines.peek().is_some_and(|next| next.trim() == "*/") {
                lines.next();
                let text = text.trim_start().trim_start_matches('*').trim();
                out.push_str(&format!("{indent}/** {text} */\n"));
                continue;
            }
            out.push_str(&format!("{line}\n{text}\n"));
            continue;
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// All that C sees, as one Rust file without macros.
fn flatten(root: &Path, host: &Host) -> Result<String, Box<dyn Error>> {
    let library = root.join("libraries").join(host.header).join("src");
    let mut own: Vec<Item> = Vec::new();
    for file in OWN {
        own.extend(parse(&library.join(file))?.items);
    }
    let mut items: Vec<Item> = Vec::new();
    for path in PLAIN {
        let common = parse(&root.join(path))?.items.into_iter();
        items.extend(common.filter(|item| !own.iter().any(|own| is_same(own, item))));
    }
    items.append(&mut own);
    let mut exports = Vec::new();
    for directory in [root.join(EXPORTS), library] {
        for entry in fs::read_dir(directory)? {
            exports.push(entry?.path());
        }
    }
    // The order of a directory is not the same everywhere.
    exports.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    let mut functions = Vec::new();
    for path in exports {
        for item in parse(&path)?.items {
            match item {
                Item::Macro(item) if item.mac.path.is_ident("export") => {
                    let inner: File = item.mac.parse_body()?;
                    functions.extend(inner.items.into_iter().filter_map(declaration));
                }
                Item::Static(item) if is_exported(&item) => items.push(Item::Static(item)),
                _ => {}
            }
        }
    }
    for item in &mut items {
        if let Item::Struct(table) = item {
            table
                .fields
                .iter_mut()
                .for_each(|entry| spell_out(entry, &functions));
        }
    }
    items.extend(functions.into_iter().map(Item::Fn));
    let file = File {
        shebang: None,
        attrs: Vec::new(),
        items,
    };
    Ok(file.into_token_stream().to_string())
}

/// Two structs of one name.
fn is_same(one: &Item, other: &Item) -> bool {
    matches!((one, other), (Item::Struct(one), Item::Struct(other)) if one.ident == other.ident)
}

fn parse(path: &Path) -> Result<File, Box<dyn Error>> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    syn::parse_file(&text).map_err(|e| format!("{}: {e}", path.display()).into())
}

/// An exported function without its body.
fn declaration(item: Item) -> Option<ItemFn> {
    let Item::Fn(mut function) = item else {
        return None;
    };
    let attribute: Attribute = parse_quote!(#[unsafe(no_mangle)]);
    function.attrs.push(attribute);
    function.block = parse_quote!({});
    Some(function)
}

/// A table's entry for one of the functions: cbindgen wants its argument list.
fn spell_out(entry: &mut Field, functions: &[ItemFn]) {
    let named = entry.ty.to_token_stream().to_string();
    let function = |function: &&ItemFn| named == format!("Option < {} >", function.sig.ident);
    if let Some(function) = functions.iter().find(function) {
        let (arguments, answer) = (&function.sig.inputs, &function.sig.output);
        entry.ty = parse_quote!(Option<unsafe extern "C" fn(#arguments) #answer>);
    }
}

fn is_exported(item: &ItemStatic) -> bool {
    item.attrs.iter().any(|attribute| {
        attribute
            .to_token_stream()
            .to_string()
            .contains("no_mangle")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_one_line_are_joined_and_longer_ones_are_left() {
        let header = "/**\n * a\n */\nint a;\n    /**\n     * b\n     * c\n     */\n";
        let joined = "/** a */\nint a;\n    /**\n     * b\n     * c\n     */\n";
        assert_eq!(one_line_comments(header), joined);
    }
}
