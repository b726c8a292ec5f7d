//! The resolver for peers whose names have to be asked for.
//!
//! ```text
//!   resolve --> placeholder for the target --> Hello: dropped
//!                        |
//!       asked over TCP (address exchange) --> name  --> Found     the Hello goes there
//!                                `-> none  --> NotFound  the connect fails
//! ```
//!
//! IP addresses follow from host and number. Addresses of `verbs` and `efa` are drawn when an
//! endpoint opens, so its process is asked as for `rdm`, over the TCP port of the endpoint number.
//!
//! Owns: answers not handed out yet.
//! Not here: the address exchange.

use super::name::FabricAddress;
use mx_proto::Target;
use mx_proto::reliability::Incoming;

/// Answers, in order of arrival: a placeholder, and the name that it stands for, if there is one.
#[derive(Debug, Default)]
pub(super) struct Resolver(Vec<(FabricAddress, Option<FabricAddress>)>);

impl Resolver {
    /// Records the name of the target's command endpoint, or that it is not on this fabric.
    pub(super) fn answer(&mut self, target: Target, name: Option<FabricAddress>) {
        self.0.push((FabricAddress::sought(target), name));
    }

    /// True if there is nothing to hand out.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Hands all answers out. True if there were any.
    pub(super) fn hand_out(
        &mut self,
        receive: &mut impl FnMut(Incoming<'_, FabricAddress>),
    ) -> bool {
        let any = !self.0.is_empty();
        for (at, name) in self.0.drain(..) {
            receive(match name {
                Some(is) => Incoming::Found { at, is },
                None => Incoming::NotFound { at },
            });
        }
        any
    }
}
