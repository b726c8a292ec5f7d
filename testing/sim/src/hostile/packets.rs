//! Packets of introductions that any node can make, true or false.

use mx_proto::port::HeaderBytes;
use mx_proto::secret::{Binding, ProofTranscript, Purpose, Role, Secret};
use mx_proto::wire::{HELLO_LEN, Header, Kind, VERSION};
use mx_proto::{EndpointId, Identity, NicId};

/// Header and body.
pub type Packet = (HeaderBytes, Vec<u8>);

/// Contents of a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Says {
    /// Identity of the sender.
    pub who: Identity,
    /// Interface and number of the receiver.
    pub to: (NicId, EndpointId),
    /// Key of the endpoint.
    pub key: u32,
    /// Number of the session at the sender.
    pub epoch: u16,
    /// Nonce of the call, which proofs cover.
    pub nonce: [u8; 16],
}

/// Makes a hello, the body of a Connect or Reply.
pub fn hello(says: &Says) -> Vec<u8> {
    let mut bytes = vec![0; HELLO_LEN];
    bytes[0..4].copy_from_slice(b"MXs1");
    bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
    bytes[6..8].copy_from_slice(&says.epoch.to_le_bytes());
    bytes[8..12].copy_from_slice(&says.key.to_le_bytes());
    bytes[12..16].copy_from_slice(&says.who.endpoint.0.to_le_bytes());
    bytes[16..24].copy_from_slice(&says.who.nic.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&says.who.session.0.to_le_bytes());
    bytes[32..40].copy_from_slice(&says.to.0.0.to_le_bytes());
    bytes[40..44].copy_from_slice(&says.to.1.0.to_le_bytes());
    bytes[48..64].copy_from_slice(&says.nonce);
    bytes
}

/// Returns the nonce in a received hello.
pub fn nonce_of(hello: &[u8]) -> Option<[u8; 16]> {
    hello.get(48..64)?.try_into().ok()
}

/// Returns the receiver that a hello names.
pub fn receiver_of(hello: &[u8]) -> Option<(NicId, EndpointId)> {
    let nic = u64::from_le_bytes(hello.get(32..40)?.try_into().ok()?);
    let number = u32::from_le_bytes(hello.get(40..44)?.try_into().ok()?);
    Some((NicId(nic), EndpointId(number)))
}

/// Makes the body of a Claim: the receiver's session with that number is the sender's, too.
pub fn claim(number: u64, called: NicId, proof: [u8; 16]) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    for _ in 0..2 {
        bytes.extend_from_slice(&called.0.to_le_bytes());
    }
    bytes.extend_from_slice(&proof);
    bytes
}

/// Returns the session number in a received claim.
pub fn number_of(claim: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(claim.get(..8)?.try_into().ok()?))
}

/// Makes the body of a Challenge with that secret, as the answer to that hello.
pub fn challenge(says: &Says, said: &[u8], secret: &Secret, binding: Binding) -> Vec<u8> {
    let mut bytes = vec![0; SAID_LEN];
    bytes[0..8].copy_from_slice(&says.who.nic.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&says.who.session.0.to_le_bytes());
    bytes[16..20].copy_from_slice(&says.who.endpoint.0.to_le_bytes());
    bytes[24..40].copy_from_slice(&says.nonce);
    let proof = prove(Role::Called, said, &bytes, secret, binding);
    bytes.extend_from_slice(&proof);
    bytes
}

/// Makes the answer to a challenge.
pub fn answer(said: &[u8], challenge: &[u8], secret: &Secret, binding: Binding) -> Vec<u8> {
    let asked = &challenge[..SAID_LEN.min(challenge.len())];
    prove(Role::Caller, said, asked, secret, binding)
}

fn prove(role: Role, said: &[u8], asked: &[u8], secret: &Secret, binding: Binding) -> Vec<u8> {
    let mut caller = said.to_vec();
    // The proof does not cover the key.
    if let Some(key) = caller.get_mut(8..12) {
        key.fill(0);
    }
    let words = ProofTranscript {
        purpose: Purpose::Introduction,
        caller: &caller,
        called: asked,
        binding,
    };
    secret.prove(role, &words).to_vec()
}

/// Makes a packet without further header fields.
pub fn packet(kind: Kind, word: u64, length: u32, aux: u32, body: Vec<u8>) -> Packet {
    let mut header = Header::new(kind, word, length);
    (header.aux, header.body_len) = (aux, body.len() as u32);
    (header.emit(), body)
}

/// Returns the kind of a packet, if it is valid.
pub fn kind_of(packet: &Packet) -> Option<Kind> {
    Header::parse(&packet.0).map(|header| header.kind)
}

/// Length of the part of a Challenge that the answer covers.
const SAID_LEN: usize = 40;
