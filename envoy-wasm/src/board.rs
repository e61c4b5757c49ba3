//! What the VMs of a process share, each of which serves one thread.

use crate::host;

/// The most VMs that are told of.
const MAX_VMS: usize = 4096;

/// The names under which one cluster's VMs share what they know.
#[derive(Debug)]
pub struct Board(String);

impl Board {
    /// Of a cluster.
    pub fn new(cluster: &str) -> Self {
        Board(format!("plimsoll/{cluster}"))
    }

    /// Who talks to agents: ordinal and beat.
    pub fn fetcher(&self) -> String {
        format!("{}/fetcher", self.0)
    }

    /// The ring in force.
    pub fn ring(&self) -> String {
        format!("{}/ring", self.0)
    }

    /// What a VM tells.
    pub fn told(&self, ordinal: u32) -> String {
        format!("{}/told/{ordinal}", self.0)
    }

    /// What a VM is granted.
    pub fn share(&self, ordinal: u32) -> String {
        format!("{}/share/{ordinal}", self.0)
    }

    /// The number of the shares of which much was given up.
    pub fn given_up(&self) -> String {
        format!("{}/given_up", self.0)
    }

    fn numbers_key(&self) -> String {
        format!("{}/numbers", self.0)
    }

    /// Of the newest shares and of the newest ring.
    pub fn numbers(&self) -> Option<(u64, u64)> {
        host::shared(&self.numbers_key()).and_then(|(value, _)| pair(&value))
    }

    /// See [`Board::numbers`].
    pub fn set_numbers(&self, (shares, ring): (u64, u64)) {
        host::share(&self.numbers_key(), &pair_bytes(shares, ring));
    }

    fn tellers_key(&self) -> String {
        format!("{}/tellers", self.0)
    }

    /// The VMs that tell, and what a change of them is compared with.
    pub fn tellers(&self) -> (Vec<u32>, Option<u32>) {
        let Some((value, cas)) = host::shared(&self.tellers_key()) else {
            return (Vec::new(), None);
        };
        let words = value.chunks_exact(4);
        let ordinal = |word: &[u8]| Some(u32::from_le_bytes(word.try_into().ok()?));
        (words.filter_map(ordinal).collect(), Some(cas))
    }

    /// See [`Board::tellers`].
    pub fn set_tellers(&self, tellers: &[u32], cas: Option<u32>) {
        let value: Vec<u8> = tellers.iter().flat_map(|vm| vm.to_le_bytes()).collect();
        // Where another was faster it is done at the next telling.
        let _ = host::share_if(&self.tellers_key(), &value, cas);
    }

    /// This VM tells.
    pub fn be_listed(&self, ordinal: u32) {
        let (mut tellers, cas) = self.tellers();
        if !tellers.contains(&ordinal) && tellers.len() < MAX_VMS {
            tellers.push(ordinal);
            self.set_tellers(&tellers, cas);
        }
    }
}

/// Two numbers, as they are shared.
pub fn pair(bytes: &[u8]) -> Option<(u64, u64)> {
    let (first, second) = bytes.split_at_checked(8)?;
    Some((
        u64::from_le_bytes(first.try_into().ok()?),
        u64::from_le_bytes(second.try_into().ok()?),
    ))
}

/// See [`pair`].
pub fn pair_bytes(first: u64, second: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    bytes
}

/// The number of this VM in its process, and the process's own.
pub fn number_vm() -> (u32, u32) {
    for _ in 0..100 {
        let held = host::shared("plimsoll/vms");
        let cas = held.as_ref().map(|(_, cas)| *cas);
        let counted = held.and_then(|(value, _)| pair(&value));
        let (ordinal, nonce) = counted.unwrap_or((0, host::seed() >> 10 & 0xff_ffff));
        if host::share_if("plimsoll/vms", &pair_bytes(ordinal + 1, nonce), cas) {
            return (ordinal as u32, nonce as u32);
        }
    }
    // Others were always faster; any number that is nobody's will do.
    (host::seed() as u32 | 0x8000_0000, 0)
}
