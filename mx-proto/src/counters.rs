//! Counters: each is declared once, with its label and its sentence.
//!
//! ```text
//!   counters! { pub struct Stats("") { Count matched: u64 = "messages that found ..", } }
//!        |--> the structure, documented        Stats::COUNTERS --> pages of live counters, mx_info, manual page
//!        `--> values(), in the same order
//! ```
//!
//! Owns: nothing.

/// A counter, as tools show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counter {
    /// Its name: letters, digits and `_`, shorter than 32 bytes.
    pub label: &'static str,
    /// The way its value changes.
    pub kind: CounterKind,
    /// Its meaning, in one sentence without a full stop.
    pub about: &'static str,
}

/// The kind of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterKind {
    /// Only up, from 0 when the endpoint is opened.
    Count,
    /// Up and down: what there is now.
    Level,
}

/// A structure of counters, whose labels have a prefix.
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
            /// Each of them.
            pub const COUNTERS: [$crate::Counter; [$(stringify!($field)),+].len()] = [$($crate::Counter {
                label: concat!($prefix, stringify!($field)),
                kind: $crate::CounterKind::$kind,
                about: $about,
            }),+];

            /// Their values, in the same order.
            pub const fn values(&self) -> [u64; Self::COUNTERS.len()] {
                [$(self.$field as u64),+]
            }
        }
    };
}
