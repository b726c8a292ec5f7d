//! Complete endpoints, and their choice of ports.

mod fabrics;
mod local_limit;
mod pair;
mod rdm;
mod settings;
mod strangers;
