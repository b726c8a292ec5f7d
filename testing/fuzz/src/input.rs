//! Bytes interpreted as a program.
//!
//! ```text
//!   step | operands | step | operands | ...        after the end: zeros
//! ```
//!
//! Reads from front to back and gives every byte one meaning, so that cutting, joining and changing
//! inputs, which is what a fuzzer does, cuts, joins and changes programs. (`arbitrary` reads
//! lengths from the end, so that a changed tail would change them.)

/// The rest of an input.
#[derive(Clone, Debug)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Returns a number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let number = match end {
            0..=256 => usize::from(self.byte()),
            _ => usize::from(self.u16()),
        };
        number % end.max(1)
    }

    pub(crate) fn choose<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Returns up to `len` bytes, fewer at the end.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        bytes
    }

    /// Returns a number that is likely to matter: an extreme, one near `known`, or any.
    pub(crate) fn near(&mut self, known: u32) -> u32 {
        match self.byte() {
            0 => known,
            1 => known.wrapping_add(1),
            2 => known.wrapping_add(self.byte().into()),
            3 => known.wrapping_sub(self.byte().into()),
            4 => 0,
            5 => u32::MAX,
            6 => known.wrapping_add(1 << 15),
            7 => known.wrapping_sub(1 << 15),
            8 => known ^ 1 << 31,
            9 => self.u16().into(),
            _ => self.u32(),
        }
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let taken = self.bytes(N);
        bytes[..taken.len()].copy_from_slice(taken);
        bytes
    }
}

/// Returns a hash of `bytes`. Not for secrets.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
