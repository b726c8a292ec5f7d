//! Counters: each is declared once, with its label and its description.
//!
//! ```text
//!   counters! { pub struct Stats("") { Count matched: u64 = "messages that found ..", } }
//!        |--> the structure, documented        Stats::COUNTERS --> pages of live counters, mx_info, manual page
//!        `--> values(), in the same order
//! ```
//!
//! Owns: nothing.

/// Description of a counter, without its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counter {
    /// Name: letters, digits and `_`, shorter than 32 bytes.
    pub label: &'static str,
    /// Kind: a count or a level.
    pub kind: CounterKind,
    /// Meaning, in one sentence without a full stop.
    pub about: &'static str,
}

/// Kind of a counter: a count or a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterKind {
    /// Counts up only, from 0 when the endpoint is opened.
    Count,
    /// Current value, which goes up and down.
    Level,
}

/// Declares a structure of counters, whose labels have a prefix.
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($prefix:literal) {
            $($kind:ident $field:ident: $type:ty = $about:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $(#[doc = $about] pub $field: $type,)+
        }

        impl $name {
            /// Descriptions of all counters, in the order of their declaration.
            pub const COUNTERS: [$crate::Counter; [$(stringify!($field)),+].len()] = [$($crate::Counter {
                label: concat!($prefix, stringify!($field)),
                kind: $crate::CounterKind::$kind,
                about: $about,
            }),+];

            /// Returns the present values of all counters, in the order of [`Self::COUNTERS`].
            pub const fn values(&self) -> [u64; Self::COUNTERS.len()] {
                [$(self.$field as u64),+]
            }
        }
    };
}
