//! The service over a provider made up in memory: what hardware asks for, and what goes wrong.
