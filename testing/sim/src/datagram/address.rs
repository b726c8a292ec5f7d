//! Names of channels: destinations of the simulator's datagrams.
//!
//! ```text
//!   command   the interface, the endpoint's number        known to all callers
//!   data      the interface, a number of this life only   told by its owner in 4 bytes
//! ```
//!
//! As with UDP: one port is well known, the other is any free one, and the name that is told is
//! meaningless without the host.

use mx_proto::origin::Source;
use mx_proto::reliability::Channel;
use mx_proto::{EndpointId, NicId};

/// Channel of a node's life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SimAddress {
    nic: NicId,
    /// Whether it is the data channel.
    data: bool,
    number: u32,
}

impl SimAddress {
    /// Returns the source: every command channel counts as a machine of its own.
    pub fn source(self) -> Source {
        Source(u64::from(self.number) + 1)
    }

    /// Returns the command channel of an endpoint.
    pub fn command(nic: NicId, endpoint: EndpointId) -> Self {
        Self {
            nic,
            data: false,
            number: endpoint.0,
        }
    }

    /// Returns the data channel with that number, on the same interface as `self`.
    pub fn data(self, number: u32) -> Self {
        Self {
            data: true,
            number,
            ..self
        }
    }

    /// Returns the number of the endpoint, or of the data channel.
    pub fn number(self) -> u32 {
        self.number
    }

    /// Returns the kind of channel.
    pub fn channel(self) -> Channel {
        if self.data {
            Channel::Data
        } else {
            Channel::Command
        }
    }

    /// Returns the name of a data channel, as its owner tells it.
    pub(super) fn name(self) -> [u8; 4] {
        self.number.to_le_bytes()
    }

    /// Returns the data channel of that name next to this command channel.
    pub(super) fn named(self, name: &[u8]) -> Option<Self> {
        let name = name.try_into().ok()?;
        Some(self.data(u32::from_le_bytes(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_channel_is_found_by_its_name_and_nonsense_is_no_name() {
        let command = SimAddress::command(NicId(1), EndpointId(2));
        let data = command.data(77);
        assert_eq!(command.named(&data.name()), Some(data));
        assert_eq!(command.named(b"abc"), None);
        assert_eq!(
            [command.channel(), data.channel()],
            [Channel::Command, Channel::Data]
        );
    }
}
