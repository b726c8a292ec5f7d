//! A process of a measurement: `crowd ADDRESS` or `server LIBRARY ADDRESS`. Its parent talks to it
//! through its standard input and output.

use bmi_host::method::Method;
use bmi_mx_crowd::{crowd, server};
use std::ffi::OsStr;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["crowd", address] => crowd::serve(address),
        ["server", library, address] => {
            Method::load(OsStr::new(library)).and_then(|method| server::serve(method, address))
        }
        _ => Err("usage: bmi_mx_crowd crowd ADDRESS, or server LIBRARY ADDRESS".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bmi_mx_crowd: {why}");
            ExitCode::FAILURE
        }
    }
}
