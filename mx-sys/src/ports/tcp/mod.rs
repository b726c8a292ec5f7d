//! The `tcp` port.
