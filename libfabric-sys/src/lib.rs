//! libfabric's binary interface, declared by hand and loaded on first use.
//!
//! ```text
//!   user                      libfabric-sys                        libfabric.so.1
//!    |                                                             (not linked, not needed to build)
//!    |-- Library::get() -----> environment, dlopen, dlvsym ------->  6 functions
//!    |-- library.hints() ----> Hints -- fi_dupinfo(NULL) --------->  allocates fi_info
//!    |-- library.query() ----> signals saved, fi_getinfo ---------->  providers
//!    |<------ InfoList ------                                            |
//!    |-- library.fabric() ---> fi_fabric ---------------------------> fid_fabric
//!    |                                                                   |
//!    |-- calls::fi_domain() -> checked step through fi_ops_fabric -----> provider
//!    |-- calls::fi_recv() ---> checked step through fi_ops_msg --------> provider
//! ```
//!
//! Owns: the layouts ([`abi`]), finding and loading the library ([`Library`]), lists of offers ([`InfoList`], [`Hints`]),
//! and calls through the tables ([`calls`]).
//! Out of scope: ports, messages.
//!
//! A binary works with 1.9 to 2.x, for three reasons:
//!
//! - only the library allocates `fi_info`, at its own size, and only members of all versions are accessed ([`abi::info`]);
//! - memory allocated here has the size of the newest version known ([`abi::attributes`], [`abi::messages`]), and the
//!   requested version of the interface is never newer than [`Library::API_VERSION`], so that a still newer library does
//!   not write more than that;
//! - an operation is called only if it is in the table ([`calls`]).
//!
//! A process that never calls [`Library::get`] or [`Library::load`] contains nothing of libfabric.

#[macro_use]
pub mod abi;
pub mod calls;

mod environment;
mod hints;
mod info;
mod library;
mod load;
mod signals;

pub use environment::{
    DEFAULTS as ENVIRONMENT, LIBRARY_VARIABLE, RXM_BUFFER_VARIABLE, RXM_EAGER_VARIABLE,
    is_elevated, is_software_rdma,
};
pub use hints::{BadName, Hints};
pub use info::{Info, InfoList};
pub use library::{DupInfo, FreeInfo, Functions, GetInfo, Library, OpenFabric, StrError, Version};
pub use load::LoadError;
pub use signals::SignalDispositions;
