//! Turns the failure of a call into a negative BMI code and a line of the log.
//!
//! Out of scope: the guard of each function (`mx_boundary`).

use crate::Error;
use bmi_method::abi::constants::BMI_EIO;
use libc::c_int;
use mx_boundary::Library;
use std::convert::Infallible;

/// Library of the BMI method, whatever its host: the type argument of the boundary's functions.
#[derive(Debug)]
pub struct Bmi;

impl Library for Bmi {
    type Error = Box<Error>;
    type Owner = Infallible;

    const OF_MESSAGES: &'static [&'static str] = &[
        "BMI_mx_cancel",
        "BMI_mx_memalloc",
        "BMI_mx_memfree",
        "BMI_mx_post_recv",
        "BMI_mx_post_recv_list",
        "BMI_mx_post_send",
        "BMI_mx_post_send_list",
        "BMI_mx_post_sendunexpected",
        "BMI_mx_post_sendunexpected_list",
        "BMI_mx_test",
        "BMI_mx_testcontext",
        "BMI_mx_testsome",
        "BMI_mx_testunexpected",
        "BMI_mx_unexpected_free",
    ];

    const PANICKED: c_int = -BMI_EIO;

    fn refused(function: &'static str, _: Option<Infallible>, error: Box<Error>) -> c_int {
        log::log!(error.level(), "{function}: {error} ({})", error.code());
        error.code()
    }
}

/// Declares exported functions, in this crate or a host's. The bodies yield `Result<return type, Box<Error>>`.
///
/// `mk/gen_header` reads the items in here as plain functions; keep them so.
#[macro_export]
macro_rules! export {
    ($($functions:tt)*) => {
        $crate::mx_boundary::export! { $crate::Bmi; $($functions)* }
    };
}
