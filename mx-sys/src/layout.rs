//! Sizes and offsets of the C interface, checked at compile time.

/// Checks a type's size, its alignment, and the offsets of its members.
#[macro_export]
macro_rules! layout {
    ($type:ty: $size:literal align $align:literal $(, $member:ident at $at:literal)* $(,)?) => {
        assert!(size_of::<$type>() == $size, stringify!($type));
        assert!(align_of::<$type>() == $align, stringify!($type));
        $(assert!(std::mem::offset_of!($type, $member) == $at, stringify!($type.$member));)*
    };
}

#[cfg(test)]
mod tests {
    #[repr(C)]
    struct Pair {
        tag: u8,
        value: u32,
    }

    const _: () = {
        layout!(Pair: 8 align 4, tag at 0, value at 4);
    };

    #[test]
    #[should_panic(expected = "Pair.value")]
    fn a_member_elsewhere_is_named() {
        layout!(Pair: 8 align 4, tag at 0, value at 1);
    }
}
