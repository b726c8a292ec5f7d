//! CRC-32C (Castagnoli), eight bytes at a time.
//!
//! ```text
//!   TABLES[k][b]: what byte b does to the remainder when k more bytes follow it
//! ```
//!
//! Catches every error of up to three bits and every burst of up to 32 in a datagram.

/// The reversed polynomial.
const POLYNOMIAL: u32 = 0x82f6_3b78;

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ POLYNOMIAL
            } else {
                crc >> 1
            };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[k - 1][byte];
            tables[k][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
}

/// Goes on from `state` over `bytes`. Starts with [`START`], ends with [`finish`].
pub(super) fn update(mut state: u32, bytes: &[u8]) -> u32 {
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let low = state ^ u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        state = TABLES[7][(low & 0xff) as usize]
            ^ TABLES[6][(low >> 8 & 0xff) as usize]
            ^ TABLES[5][(low >> 16 & 0xff) as usize]
            ^ TABLES[4][(low >> 24) as usize]
            ^ TABLES[3][usize::from(chunk[4])]
            ^ TABLES[2][usize::from(chunk[5])]
            ^ TABLES[1][usize::from(chunk[6])]
            ^ TABLES[0][usize::from(chunk[7])];
    }
    for byte in chunks.remainder() {
        state = state >> 8 ^ TABLES[0][((state ^ u32::from(*byte)) & 0xff) as usize];
    }
    state
}

/// Where [`update`] begins.
pub(super) const START: u32 = u32::MAX;

/// The checksum.
pub(super) fn finish(state: u32) -> u32 {
    !state
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crc(bytes: &[u8]) -> u32 {
        finish(update(START, bytes))
    }

    #[test]
    fn known_values_come_out() {
        // "123456789" is the usual check value; the others are of RFC 3720, B.4.
        assert_eq!(crc(b"123456789"), 0xe306_9283);
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc(b""), 0);
    }

    #[test]
    fn any_division_of_the_bytes_gives_the_same() {
        let bytes: Vec<u8> = (0..100).collect();
        for at in 0..bytes.len() {
            let state = update(update(START, &bytes[..at]), &bytes[at..]);
            assert_eq!(finish(state), crc(&bytes));
        }
    }
}
