//! C functions of a loaded library, found by their names.

/// Declares a structure of functions, and `load`, which finds them. The signatures are those of the
/// library's header.
macro_rules! functions {
    ($vis:vis struct Functions; $($field:ident = $symbol:literal: fn($($arg:ty),*) -> $result:ty;)*) => {
        $vis struct Functions {
            $($vis $field: unsafe extern "C" fn($($arg),*) -> $result,)*
        }

        impl Functions {
            $vis fn load(library: $crate::library::Library) -> Result<Self, String> {
                Ok(Self {
                    $($field: {
                        let symbol = library.symbol($symbol)?.as_ptr();
                        // SAFETY: the function of that name has this signature, and the library
                        // is never unloaded.
                        unsafe {
                            std::mem::transmute::<
                                *mut libc::c_void,
                                unsafe extern "C" fn($($arg),*) -> $result,
                            >(symbol)
                        }
                    },)*
                })
            }
        }
    };
}

pub(crate) use functions;
