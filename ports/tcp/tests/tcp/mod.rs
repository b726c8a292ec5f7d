//! The tcp port by itself, and strangers that speak to it.

mod held;
mod large;
mod links;
mod packets;
mod parts;
mod rounds;
mod strangers;
