//! Packets of introductions as any node can make them, true and untrue.

use mx_proto::port::HeaderBytes;
use mx_proto::secret::{Binding, ProofTranscript, Purpose, Role, Secret};
use mx_proto::wire::{HELLO_LEN, Header, Kind, VERSION};
use mx_proto::{EndpointId, Identity, NicId};

/// A header and its body.
pub type Packet = (HeaderBytes, Vec<u8>);

/// The contents of a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Says {
    /// Its sender.
    pub who: Identity,
    /// Its receiver.
    pub to: (NicId, EndpointId),
    /// The endpoint's key.
    pub key: u32,
    /// The sender's number of the session.
    pub epoch: u16,
    /// The number of the call, which proofs are about.
    pub nonce: [u8; 16],
}

/// A hello, as the body of a Connect or Reply.
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

/// The nonce in a hello that was heard.
pub fn nonce_of(hello: &[u8]) -> Option<[u8; 16]> {
    hello.get(48..64)?.try_into().ok()
}

/// The receiver that a hello names.
pub fn receiver_of(hello: &[u8]) -> Option<(NicId, EndpointId)> {
    let nic = u64::from_le_bytes(hello.get(32..40)?.try_into().ok()?);
    let number = u32::from_le_bytes(hello.get(40..44)?.try_into().ok()?);
    Some((NicId(nic), EndpointId(number)))
}

/// The body of a Claim: the receiver's session with that number is the sender's, too.
pub fn claim(number: u64, called: NicId, proof: [u8; 16]) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    for _ in 0..2 {
        bytes.extend_from_slice(&called.0.to_le_bytes());
    }
    bytes.extend_from_slice(&proof);
    bytes
}

/// The number of the session in a claim that was heard.
pub fn number_of(claim: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(claim.get(..8)?.try_into().ok()?))
}

/// The body of a Challenge with that secret, as an answer to that hello.
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

/// The answer to that.
pub fn answer(said: &[u8], challenge: &[u8], secret: &Secret, binding: Binding) -> Vec<u8> {
    let asked = &challenge[..SAID_LEN.min(challenge.len())];
    prove(Role::Caller, said, asked, secret, binding)
}

fn prove(role: Role, said: &[u8], asked: &[u8], secret: &Secret, binding: Binding) -> Vec<u8> {
    let mut caller = said.to_vec();
    // The key is no part of what is proven.
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

/// A packet with nothing else in its header.
pub fn packet(kind: Kind, word: u64, length: u32, aux: u32, body: Vec<u8>) -> Packet {
    let mut header = Header::new(kind, word, length);
    (header.aux, header.body_len) = (aux, body.len() as u32);
    (header.emit(), body)
}

/// The kind of a packet, if it is one.
pub fn kind_of(packet: &Packet) -> Option<Kind> {
    Header::parse(&packet.0).map(|header| header.kind)
}

/// Length of the part of a Challenge that the answer is about.
const SAID_LEN: usize = 40;
