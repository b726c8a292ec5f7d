//! The tcp port without an endpoint, and strangers that send to it.

mod held;
mod large;
mod links;
mod packets;
mod parts;
mod rounds;
mod strangers;
