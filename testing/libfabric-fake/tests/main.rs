//! The made-up provider by itself.

mod faults;
mod objects;
mod rules;
mod side;
