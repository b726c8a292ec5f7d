//! Checksum: CRC-32C (Castagnoli) of headers and payloads.
//!
//! ```text
//!   bytes --> crc-fast: carry-less multiplication where the processor has it (x86-64, aarch64),
//!             tables elsewhere; detected at run time
//! ```
//!
//! Catches every error of up to three bits and every burst of up to 32 in a datagram.

#[inline]
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    // The catalogue names the algorithm after iSCSI.
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the checksum from the polynomial's definition, one bit at a time.
    fn slowly(bytes: &[u8]) -> u32 {
        const REVERSED: u32 = 0x82f6_3b78;
        !bytes.iter().fold(u32::MAX, |state, byte| {
            (0..8).fold(state ^ u32::from(*byte), |state, _| {
                let carry = state & 1;
                (state >> 1) ^ (carry * REVERSED)
            })
        })
    }

    #[test]
    fn known_values_come_out() {
        // "123456789" is the usual check value; the others are from RFC 3720, B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn every_length_and_alignment_agrees_with_the_definition() {
        let bytes: Vec<u8> = (0u32..2100).map(|n| (n * n / 7) as u8).collect();
        for start in 0..17 {
            // Lengths for all code paths of the crate: bytes, one register, several registers.
            for len in (0..300).chain([511, 512, 513, 1023, 1024, 1025, 1408, 2047, 2048, 2080]) {
                let some = &bytes[start..start + len];
                assert_eq!(crc32c(some), slowly(some), "{len} bytes from {start}");
            }
        }
    }

    #[test]
    fn every_single_wrong_bit_of_a_header_is_seen() {
        let mut header: Vec<u8> = (0..64).collect();
        let right = crc32c(&header);
        for bit in 0..64 * 8 {
            header[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(crc32c(&header), right);
            header[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
