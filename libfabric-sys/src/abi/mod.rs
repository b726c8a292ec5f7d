//! Binary interface of libfabric: the types and numbers of its headers that an RDM or DGRAM user needs.
//!
//! ```text
//!   constants.rs   masks, enumerations, commands, options, errors
//!   info.rs        fi_info and its attributes          allocated by the library
//!   objects.rs     fid_*                               allocated by the provider
//!   tables.rs      fi_ops_*, their operations          allocated by the provider
//!   messages.rs    fi_msg*, completions, contexts      allocated by the user
//!   attributes.rs  fi_cq_attr, fi_av_attr              allocated by the user
//!   layout.rs      records of all layouts, for the test that compares them with C
//! ```
//!
//! Owns: layouts that suit 1.9 to 2.x at once, on 64-bit Linux.
//! Out of scope: loading, calling, policy.

// C's names are kept, so that they match the manual's.
#![allow(non_camel_case_types)]
// C's argument lists are long.
#![allow(clippy::type_complexity)]

#[macro_use]
#[doc(hidden)]
pub mod layout;

pub mod attributes;
pub mod constants;
pub mod info;
pub mod messages;
pub mod objects;
pub mod tables;

pub use attributes::*;
pub use constants::*;
pub use info::*;
pub use messages::*;
pub use objects::*;
pub use tables::*;

// Offsets were compared on 64-bit only, and casts of sizes rely on it.
const _: () = assert!(size_of::<usize>() == 8);

/// Every struct and table defined here, file by file.
// The globs above make each of these names ambiguous without its module, whatever the lint says.
#[allow(unused_qualifications)]
#[doc(hidden)]
pub const ALL_LAYOUTS: [&[layout::Layout]; 5] = [
    attributes::LAYOUTS,
    info::LAYOUTS,
    messages::LAYOUTS,
    objects::LAYOUTS,
    tables::TABLES,
];
