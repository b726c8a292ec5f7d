//! Peers whose names somebody has to be asked for.
//!
//! ```text
//!   resolve --> what stands for the target --> Hello: goes nowhere
//!                        |
//!       asked over TCP (address exchange) --> name  --> Found     the Hello goes there
//!                                `-> none  --> NotFound  there is nobody to call
//! ```
//!
//! Addresses of IP follow from host and number. Those of `verbs` and `efa` are drawn when an endpoint
//! opens, so its process is asked: as for `rdm`, over the TCP port of the endpoint's number.
//!
//! Owns: what has been said to the resolver and not handed out yet.
//! Knows nothing of: who asks, and how.

use super::name::FabricAddress;
use mx_proto::Target;
use mx_proto::reliability::Incoming;

/// Answers, in the order they came.
#[derive(Debug, Default)]
pub(super) struct Resolver(Vec<Answer>);

#[derive(Debug)]
enum Answer {
    At {
        sought: FabricAddress,
        name: FabricAddress,
    },
    Nowhere {
        sought: FabricAddress,
    },
}

impl Resolver {
    /// The target's command endpoint has this name.
    pub(super) fn found(&mut self, target: Target, name: FabricAddress) {
        let sought = FabricAddress::sought(target);
        self.0.push(Answer::At { sought, name });
    }

    /// There is no such endpoint on this fabric.
    pub(super) fn nowhere(&mut self, target: Target) {
        let sought = FabricAddress::sought(target);
        self.0.push(Answer::Nowhere { sought });
    }

    /// Nobody has to hear of anything.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Hands everything out. True when there was anything.
    pub(super) fn hand_out(
        &mut self,
        receive: &mut impl FnMut(Incoming<'_, FabricAddress>),
    ) -> bool {
        let any = !self.0.is_empty();
        for answer in self.0.drain(..) {
            receive(match answer {
                Answer::At { sought, name } => Incoming::Found {
                    at: sought,
                    is: name,
                },
                Answer::Nowhere { sought } => Incoming::NotFound { at: sought },
            });
        }
        any
    }
}
