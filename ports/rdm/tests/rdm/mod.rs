//! The rdm port by itself: over the provider of this machine, and over made-up ones.

mod counts;
mod devices;
mod endings;
mod frames;
mod letting_go;
mod messages;
mod receives;
mod shapes;
