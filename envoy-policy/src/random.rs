//! Pseudorandom numbers without system calls: for jitter and for schedulers, not for secrets.

/// xorshift64* (Vigna, 2016).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts a sequence; the lowest bit of `seed` is ignored.
    pub fn new(seed: u64) -> Self {
        Random(seed | 1)
    }

    /// The upper 32 bits of the next number; the lower ones are weaker.
    pub fn bits(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// A number in 0..1, without 1.
    pub fn fraction(&mut self) -> f64 {
        f64::from(self.bits()) / (f64::from(u32::MAX) + 1.0)
    }
}
