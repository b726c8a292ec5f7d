//! `libna_plugin_mx.so`: a network plugin for Mercury, which loads it from the folders of `NA_PLUGIN_PATH`.
//!
//! ```text
//!   Mercury (libna) --dlopen, na_mx_class_ops_g--> table, calls     C's pointers, codes
//!         ^                                          v
//!         |                                        class        an endpoint in its place
//!         |                                          v
//!         `--na_cb_completion_add-- engine <---- operation, context, address, memory
//!                                      v
//!                              mx-sys, mx-proto: messages, regions
//! ```
//!
//! Mercury's messages are the endpoint's messages. Mercury's memory handles are registered regions, which put and get
//! access.

mod abi;
mod address;
mod calls;
mod class;
mod context;
mod engine;
mod libna;
mod memory;
mod operation;
mod table;

pub use table::na_mx_class_ops_g;

// Linked for its hidden functions.
use mx_system_calls as _;

mx_sys::library_allocator!();
mx_sys::on_load!(mx_sys::stderr::take_panics());
mx_sys::on_load!(table::fill());
