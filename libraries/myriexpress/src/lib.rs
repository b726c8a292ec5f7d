//! `libmyriexpress.so`: the functions of `myriexpress-api`, with the allocator of a library that programs load.

pub use myriexpress_api::exports;

// Linked for its hidden functions.
use mx_system_calls as _;

mx_sys::library_allocator!();
mx_sys::on_load!(mx_sys::stderr::take_panics());
