//! Macros for definitions that also record their layout, for a test that compares them with C's headers.
//!
//! ```text
//!   c_structs! { pub struct x { a: u64, } }      c_constants! { FI_MSG: u64 = 1 << 1; }
//!        |                      |                     |                 |
//!        v                      v                     v                 v
//!   #[repr(C)] struct x    LAYOUTS: offsets      pub const FI_MSG   CONSTANTS: values
//!                               |                                       |
//!                               +-----------> tests/layout.rs <---------+
//! ```
//!
//! Owns: the macros, and their records.
//! Out of scope: libfabric.
//!
//! A definition cannot exist without its record: one macro call generates both, and each file of definitions has one call
//! for its structs and one for its constants.

/// Versions of libfabric that have a member or constant, relative to 1.17.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// In every version from the oldest that we load to the newest known.
    Always,
    /// Added after 1.17.
    Later,
    /// Removed from the headers of 2.x.
    Earlier,
}

/// Size of a struct of ours relative to the library's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// As large as in the newest version known.
    Whole,
    /// The part that all versions have; the library allocates the struct, and more may follow.
    Prefix,
}

/// Member of a struct.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Name of the member, perhaps with Rust's `r#`.
    pub name: &'static str,
    /// Offset in the struct, in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    /// Type, as Rust spells it.
    pub ty: &'static str,
    /// Versions that have the member.
    pub presence: Presence,
}

/// Struct and its members.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Name of the struct, equal to C's after `struct`.
    pub name: &'static str,
    /// Size here, in bytes.
    pub size: usize,
    /// Alignment here, in bytes.
    pub align: usize,
    /// Size relative to the library's.
    pub extent: Extent,
    /// Members, in order.
    pub members: &'static [Member],
}

/// Constant and its value.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Name of the constant, equal to C's.
    pub name: &'static str,
    /// Value, widened.
    pub value: u64,
    /// Versions that have the constant.
    pub presence: Presence,
}

/// Converts the attribute before a name: none, `later` or `earlier`; `whole` or `prefix`.
macro_rules! record {
    (presence) => {
        $crate::abi::layout::Presence::Always
    };
    (presence later) => {
        $crate::abi::layout::Presence::Later
    };
    (presence earlier) => {
        $crate::abi::layout::Presence::Earlier
    };
    (extent whole) => {
        $crate::abi::layout::Extent::Whole
    };
    (extent prefix) => {
        $crate::abi::layout::Extent::Prefix
    };
}

/// Defines data structs: `[whole] pub struct name { /// doc  member: type, [later] member: type, }`.
macro_rules! c_structs {
    ($(
        $(#[$meta:meta])*
        [$extent:ident] pub struct $name:ident {
            $( $(#[$doc:meta])* $([$when:ident])? $member:ident : $ty:ty, )+
        }
    )+) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug)]
            pub struct $name {
                $( $(#[$doc])* pub $member: $ty, )+
            }

            impl $name {
                /// All members zero or null.
                // SAFETY: numbers, raw pointers and structs of these.
                pub const EMPTY: Self = unsafe { std::mem::zeroed() };
            }
        )+

        /// Layouts of all structs of this file.
        pub(super) const LAYOUTS: &[$crate::abi::layout::Layout] = &[$(
            $crate::abi::layout::Layout {
                name: stringify!($name),
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                extent: record!(extent $extent),
                members: &[$(
                    $crate::abi::layout::Member {
                        name: stringify!($member),
                        offset: std::mem::offset_of!($name, $member),
                        size: size_of::<$ty>(),
                        ty: stringify!($ty),
                        presence: record!(presence $($when)?),
                    },
                )+],
            },
        )+];
    };
}

/// Defines operation tables: `pub struct name at object.member { /// doc  operation: (first; argument: type, ...) ->
/// type => call, }`. Each gets the leading `size` of all libfabric tables, `EMPTY`, and the named calls. An operation
/// without a signature is never called.
macro_rules! c_tables {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident at $object:ident.$table:ident {
            $(
                $(#[$doc:meta])*
                $member:ident $( : $arguments:tt -> $ret:ty $( => $call:ident )? )?,
            )+
        }
    )+) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug)]
            pub struct $name {
                /// Bytes of the table as compiled into its provider; members beyond do not exist.
                pub size: usize,
                $(
                    $(#[$doc])*
                    pub $member: operation!(type $( $arguments $ret )?),
                )+
            }

            impl $name {
                /// Table of full size without any operation.
                pub const EMPTY: Self = Self { size: size_of::<Self>(), $( $member: None, )+ };
            }
        )+

        /// Calls through these tables; [`crate::calls`] has their safety contract.
        // libfabric defines the argument lists.
        #[allow(clippy::too_many_arguments, clippy::missing_safety_doc)]
        pub mod operations {
            use super::*;

            $($($($(
                operation!(call $call, $object.$table, $name.$member, $arguments $ret);
            )?)?)+)+
        }

        /// Layouts of all tables of this file.
        pub(super) const TABLES: &[$crate::abi::layout::Layout] = &[$(
            $crate::abi::layout::Layout {
                name: stringify!($name),
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                extent: $crate::abi::layout::Extent::Prefix,
                members: &[
                    $crate::abi::layout::Member {
                        name: "size",
                        offset: std::mem::offset_of!($name, size),
                        size: size_of::<usize>(),
                        ty: "usize",
                        presence: $crate::abi::layout::Presence::Always,
                    },
                    $(
                        $crate::abi::layout::Member {
                            name: stringify!($member),
                            offset: std::mem::offset_of!($name, $member),
                            size: size_of::<usize>(),
                            ty: operation!(text $( $arguments $ret )?),
                            presence: $crate::abi::layout::Presence::Always,
                        },
                    )+
                ],
            },
        )+];
    };
}

/// Expands an operation to its type, its type as text, or its call; and `get` to the `Option` of a table's function.
macro_rules! operation {
    (type) => {
        Option<unsafe extern "C" fn()>
    };
    (type ( $first:ty; $( $arg:ident : $ty:ty ),* $(,)? ) $ret:ty) => {
        Option<unsafe extern "C" fn($first $(, $ty)*) -> $ret>
    };
    (text) => {
        ""
    };
    (text ( $first:ty; $( $arg:ident : $ty:ty ),* $(,)? ) $ret:ty) => {
        concat!("fn(", stringify!($first), ",", $( stringify!($ty), ",", )* ")->", stringify!($ret))
    };
    (
        call $call:ident, $object:ident.$table:ident, $name:ident.$member:ident,
        ( $first:ty; $( $arg:ident : $ty:ty ),* $(,)? ) $ret:ty
    ) => {
        #[doc = concat!("[`", stringify!($name), "::", stringify!($member), "`]")]
        #[inline]
        pub unsafe fn $call(object: *mut $object $(, $arg: $ty)*) -> $ret {
            // SAFETY: an open object.
            let table = unsafe { (*object).$table };
            match operation!(get table, $name, $member) {
                // SAFETY: guaranteed by the caller, as documented in `calls`; the first member of every object is its
                // `fid`.
                Some(call) => unsafe { call(object.cast() $(, $arg)*) },
                None => -$crate::abi::FI_ENOSYS as _,
            }
        }
    };
    (get $table:expr, $type:ty, $member:ident) => {{
        let table: *const $type = $table;
        let end =
            std::mem::offset_of!($type, $member) + size_of::<Option<unsafe extern "C" fn()>>();
        if table.is_null() {
            None
        } else {
            // SAFETY: every table begins with its size.
            let size = unsafe { (*table).size };
            if size < end {
                None
            } else {
                // SAFETY: the member lies within the size that the provider gave.
                unsafe { (*table).$member }
            }
        }
    }};
}

/// Defines constants: `type { [later] NAME = value; ... }`, a group per type.
macro_rules! c_constants {
    ($( $(#[$group:meta])* $ty:ty {
        $( $(#[$doc:meta])* $([$when:ident])? $name:ident = $value:expr; )+
    } )+) => {
        $($( $(#[$doc])* pub const $name: $ty = $value; )+)+

        /// All constants of this file.
        pub const CONSTANTS: &[$crate::abi::layout::Constant] = &[$($(
            $crate::abi::layout::Constant {
                name: stringify!($name),
                value: $name as u64,
                presence: record!(presence $($when)?),
            },
        )+)+];
    };
}
