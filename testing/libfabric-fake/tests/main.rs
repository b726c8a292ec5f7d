//! The made-up provider by itself.

mod conversations;
mod datagrams;
mod faults;
mod objects;
mod registrations;
mod rules;
mod side;
