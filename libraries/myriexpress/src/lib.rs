//! `libmyriexpress.so`: the functions of `myriexpress-api`, with the allocator of a library that programs load.

pub use myriexpress_api::exports;

mx_sys::library_allocator!();
mx_sys::on_load!(mx_sys::stderr::take_panics());
