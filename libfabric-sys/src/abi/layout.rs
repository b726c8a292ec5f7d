//! Macros for definitions that also record their layout, for a test that compares them with C's
//! headers.
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
//! A definition cannot exist without its record: both come from one macro call, and each file of
//! definitions is one call for its structs and one for its constants.

/// The versions of libfabric that have a member or constant, seen from 1.17.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Every version from the oldest we load to the newest we know.
    Always,
    /// Came after 1.17.
    Later,
    /// Had gone from the headers of 2.x.
    Earlier,
}

/// The relation of the size of a struct of ours to the library's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All that the newest version we know has.
    Whole,
    /// The part that all versions have; the library allocates it, and more may follow.
    Prefix,
}

/// A member of a struct.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Its name, perhaps with Rust's `r#`.
    pub name: &'static str,
    /// Its offset.
    pub offset: usize,
    /// Its size.
    pub size: usize,
    /// Its type as Rust spells it.
    pub ty: &'static str,
    /// The versions that have it.
    pub presence: Presence,
}

/// A struct and its members.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Its name, the same in C behind `struct`.
    pub name: &'static str,
    /// Its size here.
    pub size: usize,
    /// Its alignment here.
    pub align: usize,
    /// The relation of the size to the library's.
    pub extent: Extent,
    /// Its members, in order.
    pub members: &'static [Member],
}

/// A constant and its value.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Its name, the same in C.
    pub name: &'static str,
    /// Its value, widened.
    pub value: u64,
    /// The versions that have it.
    pub presence: Presence,
}

/// The word before a name: none, `later` or `earlier`; `whole` or `prefix`.
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

/// Structs of data: `[whole] pub struct name { /// doc  member: type, [later] member: type, }`.
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
                /// All zero, and null.
                // SAFETY: numbers, raw pointers and structs of these.
                pub const EMPTY: Self = unsafe { std::mem::zeroed() };
            }
        )+

        /// Every struct of this file.
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

/// Operation tables: `pub struct name at object.member { /// doc  operation: (first; argument: type, ...) -> type => call, }`.
/// Each gets the leading `size` that all of libfabric's tables have, `EMPTY`, to fill in, and the calls that
/// are named. An operation without a signature is not called.
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
                /// The bytes of the table as its provider was compiled: what lies beyond is not
                /// there.
                pub size: usize,
                $(
                    $(#[$doc])*
                    pub $member: operation!(type $( $arguments $ret )?),
                )+
            }

            impl $name {
                /// A table of full size without a single operation.
                pub const EMPTY: Self = Self { size: size_of::<Self>(), $( $member: None, )+ };
            }
        )+

        /// The calls through these tables; [`crate::calls`] says what they rely on.
        // The argument lists are libfabric's.
        #[allow(clippy::too_many_arguments, clippy::missing_safety_doc)]
        pub mod operations {
            use super::*;

            $($($($(
                operation!(call $call, $object.$table, $name.$member, $arguments $ret);
            )?)?)+)+
        }

        /// Every table of this file.
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

/// An operation: its type, the same as text, and its call; and `get`, an `Option` of the function in a table.
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
                // SAFETY: the caller's word, as the documentation of `calls` has it; the first member
                // of every object is its `fid`.
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
                // SAFETY: the member lies within the size the provider gave.
                unsafe { (*table).$member }
            }
        }
    }};
}

/// Constants: `type { [later] NAME = value; ... }`, a group for each type.
macro_rules! c_constants {
    ($( $(#[$group:meta])* $ty:ty {
        $( $(#[$doc:meta])* $([$when:ident])? $name:ident = $value:expr; )+
    } )+) => {
        $($( $(#[$doc])* pub const $name: $ty = $value; )+)+

        /// Every constant of this file.
        pub const CONSTANTS: &[$crate::abi::layout::Constant] = &[$($(
            $crate::abi::layout::Constant {
                name: stringify!($name),
                value: $name as u64,
                presence: record!(presence $($when)?),
            },
        )+)+];
    };
}
