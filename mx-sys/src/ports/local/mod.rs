//! The `local` port.
