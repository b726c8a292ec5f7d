//! MX's codes, and their texts.
//!
//! ```text
//!   numbers! { Code { BadSegList = 10 c"bad segment list" } }
//!      Code::of(10) --> Code::BadSegList         Code::words(10) --> "bad segment list"
//! ```

/// Declares an enum of MX's numbers, with their texts if given.
macro_rules! numbers {
    ($(#[$about:meta])* $name:ident { $($one:ident = $number:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        #[expect(missing_docs, reason = "the names are MX's own; the header says what they mean")]
        pub enum $name { $($one = $number,)* }

        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$one,)*];

            /// Returns the value with that number; `None` if there is none.
            #[must_use]
            pub fn of(number: u32) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| *one as u32 == number)
            }
        }
    };
    ($(#[$about:meta])* $name:ident or $unknown:literal { $($one:ident = $number:literal $words:literal,)* }) => {
        numbers! { $(#[$about])* $name { $($one = $number,)* } }

        impl $name {
            /// Returns the text for a number; a general text for an unknown one.
            #[must_use]
            pub fn words(number: u32) -> &'static std::ffi::CStr {
                match number {
                    $($number => $words,)*
                    _ => $unknown,
                }
            }
        }
    };
}
pub(crate) use numbers;

#[cfg(test)]
mod tests {
    use crate::error::Code;
    use crate::info::Key;
    use crate::status::StatusCode;
    use std::collections::HashSet;

    #[test]
    fn every_number_is_one_of_its_own_and_has_words_of_its_own() {
        let words: HashSet<_> = Code::ALL
            .iter()
            .map(|one| Code::words(*one as u32))
            .collect();
        assert_eq!((words.len(), Code::ALL.len()), (44, 44));
        let words = StatusCode::ALL
            .iter()
            .map(|one| StatusCode::words(*one as u32));
        let words: HashSet<_> = words.collect();
        assert_eq!((words.len(), StatusCode::ALL.len()), (17, 17));
        for number in 0..44 {
            assert_eq!(Code::of(number).unwrap() as u32, number);
        }
        for number in 0..17 {
            assert_eq!(StatusCode::of(number).unwrap() as u32, number);
        }
        for number in 1..=16 {
            assert_eq!(Key::of(number).unwrap() as u32, number);
        }
    }

    #[test]
    fn numbers_that_are_no_code_have_words_too() {
        assert_eq!(Code::words(43), c"not supported with context ids");
        assert_eq!(Code::words(44), c"unknown return code");
        assert_eq!(Code::words(u32::MAX), c"unknown return code");
        assert_eq!(StatusCode::words(16), c"out of resources");
        assert_eq!(StatusCode::words(17), c"unknown status code");
        assert_eq!(Code::of(44), None);
        assert_eq!(Key::of(0), None);
    }
}
