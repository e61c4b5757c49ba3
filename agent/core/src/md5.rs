//! Hash that PostgreSQL and HAProxy's Lua also provide.

use ::md5::{Digest, Md5};

/// Last 4 bytes of a key's MD5 (RFC 1321) as a big-endian number.
pub fn md5_word(key: &[u8]) -> u32 {
    let digest: [u8; 16] = Md5::digest(key).into();
    u32::from_be_bytes([digest[12], digest[13], digest[14], digest[15]])
}

#[cfg(test)]
mod tests {
    use super::md5_word;

    #[test]
    fn md5_word_matches_rfc_1321() {
        // RFC 1321, A.5: MD5("a") = 0cc175b9c0f1b6a831c399e269772661
        assert_eq!(md5_word(b"a"), 0x6977_2661);
        assert_eq!(md5_word(b""), 0xecf8_427e);
    }
}
