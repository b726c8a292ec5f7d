//! Tests of the fake provider by itself.

mod faults;
mod objects;
mod rules;
mod side;
