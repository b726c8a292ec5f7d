//! Build script of the programs that load a library of ours by its name: where it is, seen from the program.

fn main() {
    println!("cargo:rerun-if-env-changed=PROGRAMS_RPATH");
    let path = std::env::var("PROGRAMS_RPATH").unwrap_or_default();
    if !path.is_empty() {
        println!("cargo:rustc-link-arg-bins=-Wl,-rpath,{path}");
    }
}
