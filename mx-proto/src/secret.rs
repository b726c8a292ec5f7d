//! Secret of a site, and proofs of knowing it.
//!
//! ```text
//!   caller                               called
//!   hello, with a nonce         -------> hello, with a nonce
//!                               <------- mac(Called)
//!   mac(Caller)                 ------->
//!
//!   mac(role) = HMAC-SHA-256(secret, label, purpose, role,
//!                            the caller's hello, the called side's, binding of the link)
//! ```
//!
//! A proof is valid only once: for one role, one nonce, the hellos of both sides, and one link.
//!
//! Out of scope: files, packets.

use crate::ids::{EndpointId, NicId};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fmt;
use zeroize::Zeroizing;

/// Length of a proof in bytes.
pub const PROOF_LEN: usize = 32;

/// Length of a nonce in bytes.
pub const NONCE_LEN: usize = 16;

/// Proof of knowing the site's secret: an HMAC-SHA-256.
pub type ProofBytes = [u8; PROOF_LEN];

/// Value that both ends of a link know, the caller's part first, and that no other link has, so that a proof is valid
/// on one link only. Zeros: the port has none.
pub type Binding = [u64; 2];

/// Number used once: each side of a proof sends one in its hello, so that a recorded proof is not valid again.
pub type Nonce = [u8; NONCE_LEN];

/// Secret of a site; never printed, and overwritten when the last copy is dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Purpose of a proof, which is not valid for any other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Purpose {
    /// Introduction of two endpoints at the beginning of a session.
    Introduction = 1,
    /// Request in an exchange of addresses.
    Question = 2,
    /// Answer in an exchange of addresses.
    Answer = 3,
}

/// Role of the prover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Role {
    /// Side that began the link.
    Caller = 1,
    /// Side that was called.
    Called = 2,
}

/// Exchanged words that a proof covers, besides the secret and the role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProofTranscript<'a> {
    /// Purpose of the proof.
    pub purpose: Purpose,
    /// Caller's hello, its nonce included.
    pub caller: &'a [u8],
    /// Called side's hello, its nonce included.
    pub called: &'a [u8],
    /// Binding of the link.
    pub binding: Binding,
}

/// Labels that distinguish the inputs from those of other programs, uses and layouts.
const LABEL: &[u8] = b"bmi_mx site secret 1\0";
const NONCE_LABEL: &[u8] = b"bmi_mx nonce 1\0";
const CALL_LABEL: &[u8] = b"bmi_mx call 1\0";
const CLAIM_LABEL: &[u8] = b"bmi_mx claim 1\0";
const REGION_LABEL: &[u8] = b"bmi_mx region 1\0";
const DATA_LINK_LABEL: &[u8] = b"bmi_mx data link 1\0";

impl Secret {
    /// Makes a secret of exactly these bytes; none is trimmed or ignored.
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(bytes)
    }

    /// Returns the proof that the side in `role` sends to the other side. `words` must be what both sides have
    /// exchanged.
    pub fn prove(&self, role: Role, words: &ProofTranscript<'_>) -> ProofBytes {
        self.mac(role, words).finalize().into_bytes().into()
    }

    /// Returns whether `proof` is what the side in `role` must send. Compares in constant time, so that a forger learns
    /// nothing from the duration.
    pub fn verify(&self, role: Role, words: &ProofTranscript<'_>, proof: &[u8]) -> bool {
        self.mac(role, words).verify_slice(proof).is_ok()
    }

    fn mac(&self, role: Role, words: &ProofTranscript<'_>) -> Hmac<Sha256> {
        let mut mac = keyed(&self.0);
        mac.update(LABEL);
        mac.update(&[words.purpose as u8, role as u8]);
        // With their lengths, so that no two pairs of hellos look alike.
        for said in [words.caller, words.called] {
            mac.update(&(said.len() as u64).to_le_bytes());
            mac.update(said);
        }
        for known in words.binding {
            mac.update(&known.to_le_bytes());
        }
        mac
    }
}

/// Returns the nonce for `number`, which cannot be predicted without the endpoint's secret `key`. The caller must not
/// use a number twice with one key.
pub fn nonce(key: &[u8; 16], number: u64) -> Nonce {
    let mut mac = keyed(key);
    mac.update(NONCE_LABEL);
    mac.update(&number.to_le_bytes());
    let bytes: ProofBytes = mac.finalize().into_bytes().into();
    let mut nonce = Nonce::default();
    nonce.copy_from_slice(&bytes[..NONCE_LEN]);
    nonce
}

/// Returns the nonce of a call, for its hello. It contains the number of the call, and only the endpoint's key makes
/// it. `call` and `link` together must not be reused.
pub(crate) fn call_nonce(key: &[u8; 16], call: u64, link: u64) -> Nonce {
    let mut mac = keyed(key);
    mac.update(CALL_LABEL);
    for word in [call, link] {
        mac.update(&word.to_le_bytes());
    }
    let bytes: ProofBytes = mac.finalize().into_bytes().into();
    let mut nonce = Nonce::default();
    nonce[..8].copy_from_slice(&call.to_le_bytes());
    nonce[8..].copy_from_slice(&bytes[..8]);
    nonce
}

pub(crate) fn call_of(nonce: &Nonce) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&nonce[..8]);
    u64::from_le_bytes(bytes)
}

/// Returns the key of the region with this number, which cannot be predicted without the endpoint's key. Numbers must
/// not be reused.
pub(crate) fn region_key(key: &[u8; 16], number: u64) -> u64 {
    let mut mac = keyed(key);
    mac.update(REGION_LABEL);
    mac.update(&number.to_le_bytes());
    let bytes: ProofBytes = mac.finalize().into_bytes().into();
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

/// Returns the proof that one session belongs to the same process as another: a proof of knowing `of`, the nonce that
/// the receiver has drawn for the other. `nonces`: those of the session, the receiver's and the prover's; `called`: the
/// receiver's names, as the prover knows them from the session and from the other.
pub(crate) fn claim_proof(
    of: &Nonce,
    nonces: [&Nonce; 2],
    called: [(NicId, EndpointId); 2],
) -> Nonce {
    let mut mac = keyed(of);
    mac.update(CLAIM_LABEL);
    for nonce in nonces {
        mac.update(nonce);
    }
    for (nic, endpoint) in called {
        mac.update(&nic.0.to_le_bytes());
        mac.update(&endpoint.0.to_le_bytes());
    }
    let bytes: ProofBytes = mac.finalize().into_bytes().into();
    let mut proof = Nonce::default();
    proof.copy_from_slice(&bytes[..NONCE_LEN]);
    proof
}

/// Returns the proof of one side that the data link with this number belongs to the session with these nonces, the
/// caller's first. It covers the link's binding and the site's secret, if there are any.
pub(crate) fn data_link_proof(
    secret: Option<&Secret>,
    role: Role,
    number: u32,
    binding: Binding,
    nonces: [&Nonce; 2],
) -> Nonce {
    let mut mac = keyed(secret.map_or(&[], |secret| &secret.0));
    mac.update(DATA_LINK_LABEL);
    mac.update(&[role as u8]);
    mac.update(&number.to_le_bytes());
    for word in binding {
        mac.update(&word.to_le_bytes());
    }
    for nonce in nonces {
        mac.update(nonce);
    }
    let bytes: ProofBytes = mac.finalize().into_bytes().into();
    let mut proof = Nonce::default();
    proof.copy_from_slice(&bytes[..NONCE_LEN]);
    proof
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    // HMAC takes keys of every length.
    Hmac::new_from_slice(key).unwrap_or_else(|_| unreachable!("HMAC takes every key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(Zeroizing::new(text.as_bytes().to_vec()))
    }

    const WORDS: ProofTranscript<'static> = ProofTranscript {
        purpose: Purpose::Introduction,
        caller: b"hello from A, nonce 1",
        called: b"hello from B, nonce 2",
        binding: [7, 9],
    };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_hash_is_the_one_of_rfc_4231() {
        // Test cases 2 and 6: a short key, and one longer than a block.
        let mut mac = keyed(b"Jefe");
        mac.update(b"what do ya want for nothing?");
        assert_eq!(
            hex(&mac.finalize().into_bytes()),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let mut mac = keyed(&[0xaa; 131]);
        mac.update(b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(
            hex(&mac.finalize().into_bytes()),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn proofs_and_nonces_stay_the_same_in_every_version() {
        let secret = secret("0123456789abcdef");
        assert_eq!(
            hex(&secret.prove(Role::Caller, &WORDS)),
            "22bf9b21a2b6200df169cd1639983fa525bde3a1015740fc58df2ec76d984bd9"
        );
        assert_eq!(
            hex(&secret.prove(Role::Called, &WORDS)),
            "f31cdb83169eadb2e9c3ed0b3a0829c48b8a16773a18c4c8ebf69a027880e153"
        );
        assert_eq!(hex(&nonce(&[5; 16], 3)), "8d6016182163ba6812b1c493890234c3");
    }

    #[test]
    fn proof_is_valid_only_for_its_side_words_link_and_secret() {
        let ours = secret("0123456789abcdef");
        let proof = ours.prove(Role::Caller, &WORDS);
        assert!(ours.verify(Role::Caller, &WORDS, &proof));
        assert!(!ours.verify(Role::Called, &WORDS, &proof), "reflected");
        let swapped = ProofTranscript {
            caller: WORDS.called,
            called: WORDS.caller,
            ..WORDS
        };
        for role in [Role::Caller, Role::Called] {
            assert!(
                !ours.verify(role, &swapped, &proof),
                "reflected as {role:?}"
            );
        }
        for other in [
            "0123456789abcdeg",
            "0123456789abcde",
            "0123456789abcdef\n",
            "",
        ] {
            assert!(
                !secret(other).verify(Role::Caller, &WORDS, &proof),
                "{other:?}"
            );
        }
        let others = [
            ProofTranscript {
                caller: b"hello from A, nonce 3",
                ..WORDS
            },
            ProofTranscript {
                called: b"hello from B, nonce 3",
                ..WORDS
            },
            ProofTranscript {
                binding: [9, 7],
                ..WORDS
            },
            ProofTranscript {
                purpose: Purpose::Question,
                ..WORDS
            },
            ProofTranscript {
                purpose: Purpose::Answer,
                ..WORDS
            },
            // Equal bytes, divided elsewhere.
            ProofTranscript {
                caller: b"hello from A, nonce 1h",
                called: b"ello from B, nonce 2",
                ..WORDS
            },
        ];
        for words in &others {
            assert!(!ours.verify(Role::Caller, words, &proof), "{words:?}");
        }
    }

    #[test]
    fn a_proof_cut_lengthened_or_with_a_bit_changed_is_none() {
        let secret = secret("0123456789abcdef");
        let proof = secret.prove(Role::Called, &WORDS);
        for len in 0..PROOF_LEN {
            assert!(!secret.verify(Role::Called, &WORDS, &proof[..len]));
        }
        let longer: Vec<u8> = proof.iter().copied().chain([0]).collect();
        assert!(!secret.verify(Role::Called, &WORDS, &longer));
        for bit in 0..PROOF_LEN * 8 {
            let mut changed = proof;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!secret.verify(Role::Called, &WORDS, &changed), "bit {bit}");
        }
    }

    #[test]
    fn no_two_nonces_are_alike_and_the_secret_is_not_shown() {
        let mut seen = std::collections::HashSet::new();
        for key in [[0; 16], [1; 16]] {
            for number in 0..1000 {
                assert!(seen.insert(nonce(&key, number)));
            }
        }
        let shown = format!("{:?}", secret("0123456789abcdef"));
        assert_eq!(shown, "Secret(..)");
    }
}
