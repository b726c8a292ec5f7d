//! libfabric, loaded when it is first asked for.
//!
//! ```text
//!   user ---> Library::get() ---> dlopen("libfabric.so.1")      once, when first needed
//!     |
//!     `-----> abi: the types                                     compiled in
//! ```

pub mod abi;
