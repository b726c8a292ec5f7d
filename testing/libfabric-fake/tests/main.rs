//! The made-up provider by itself.

mod datagrams;
mod faults;
mod objects;
mod registrations;
mod rules;
mod side;
