//! The bindings compared with the headers, and the loading of libraries.

mod common;
mod layout;
mod loading;
