//! Proofs of the site's secret for endpoint addresses.
//!
//! ```text
//!   question:  asker's nonce (16)      proof (32)  endpoint address
//!   answer:    proof (32)  answer                          a refusal may come without
//!
//!   asker's words:      the port that is asked for, its nonce, its endpoint address
//!   answerer's words:   its nonce, then its answer
//! ```

use super::packet::For;
use mx_port_fabric::endpoint_address::{Answer, Refusal};
use mx_proto::LinkId;
use mx_proto::secret::{NONCE_LEN, Nonce, PROOF_LEN, Purpose, Role, Secret, Words, nonce};
use std::fmt;

/// The length of the fields before the endpoint address in a question.
pub(super) const BEFORE_ADDRESS: usize = NONCE_LEN + PROOF_LEN;

/// Makes proofs, and tells what they are worth.
pub(super) struct Guard {
    secret: Secret,
    key: [u8; 16],
    /// Questions so far.
    asked: u64,
}

/// A question, as far as the answer is about it.
#[derive(Debug)]
pub(super) struct Proven {
    caller: Vec<u8>,
    nonce: Nonce,
}

/// Nonces of questions have even numbers, those of links odd ones: none is both.
const OF_LINKS: u64 = 1;

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A reader of the key could predict the next questions.
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Guard {
    pub(super) fn new(secret: Secret, key: [u8; 16]) -> Self {
        Self {
            secret,
            key,
            asked: 0,
        }
    }

    /// The nonce for a stranger on this link. A link has one question, so nothing is stored.
    pub(super) fn nonce_for(&self, link: LinkId) -> Nonce {
        let name = u64::from(link.generation()) << 32 | u64::from(link.index());
        nonce(&self.key, name << 1 | OF_LINKS)
    }

    /// The bytes of a question to the answerer with that nonce.
    pub(super) fn question(
        &mut self,
        of: For,
        endpoint_address: &[u8],
        theirs: Nonce,
    ) -> (Vec<u8>, Proven) {
        let ours = nonce(&self.key, self.asked << 1);
        self.asked += 1;
        let proven = words(of, ours, endpoint_address, theirs);
        let words = Words {
            purpose: Purpose::Question,
            caller: &proven.caller,
            called: &theirs,
            binding: [0; 2],
        };
        let proof = self.secret.prove(Role::Caller, &words);
        ([&ours[..], &proof, endpoint_address].concat(), proven)
    }

    /// The endpoint address of a question on that link, if the asker has proven the secret.
    pub(super) fn asked(&self, of: For, link: LinkId, bytes: &[u8]) -> Option<(Vec<u8>, Proven)> {
        let (theirs, rest) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let (proof, endpoint_address) = rest.split_first_chunk::<PROOF_LEN>()?;
        let proven = words(of, *theirs, endpoint_address, self.nonce_for(link));
        let words = Words {
            purpose: Purpose::Question,
            caller: &proven.caller,
            called: &proven.nonce,
            binding: [0; 2],
        };
        let right = self.secret.verify(Role::Caller, &words, proof);
        right.then(|| (endpoint_address.to_vec(), proven))
    }

    /// The bytes of an answer.
    pub(super) fn answer(&self, to: &Proven, answer: &[u8]) -> Vec<u8> {
        let called = [&to.nonce[..], answer].concat();
        let proof = self.secret.prove(Role::Called, &answered(to, &called));
        [&proof[..], answer].concat()
    }

    /// The contents of an answer. Only a refusal is accepted without a proof.
    pub(super) fn answered(&self, to: Option<&Proven>, bytes: &[u8]) -> Option<Answer> {
        if let Some(to) = to
            && let Some((proof, answer)) = bytes.split_first_chunk::<PROOF_LEN>()
        {
            let called = [&to.nonce[..], answer].concat();
            let words = answered(to, &called);
            if self.secret.verify(Role::Called, &words, proof) {
                return Answer::parse(answer);
            }
        }
        Some(match Answer::parse(bytes) {
            Some(answer @ Answer::None { .. }) => answer,
            _ => Answer::None {
                why: Refusal::Secret,
                provider: String::new(),
            },
        })
    }
}

fn words(of: For, theirs: Nonce, endpoint_address: &[u8], nonce: Nonce) -> Proven {
    Proven {
        caller: [&[of.byte()], &theirs[..], endpoint_address].concat(),
        nonce,
    }
}

fn answered<'a>(to: &'a Proven, called: &'a [u8]) -> Words<'a> {
    Words {
        purpose: Purpose::Answer,
        caller: &to.caller,
        called,
        binding: [0; 2],
    }
}
