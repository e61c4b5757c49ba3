//! The shared data by which a process's VMs, one per thread, exchange reports, shares and the ring.

use crate::host;

/// Most VMs whose reports are listed.
const MAX_VMS: usize = 4096;

/// The keys of one cluster's shared data.
#[derive(Debug)]
pub struct Board(String);

impl Board {
    /// The board of the cluster with this name.
    pub fn new(cluster: &str) -> Self {
        Board(format!("plimsoll/{cluster}"))
    }

    /// Key of the fetcher, the VM that calls agents: its ordinal and its beat.
    pub fn fetcher(&self) -> String {
        format!("{}/fetcher", self.0)
    }

    /// Key of the newest ring.
    pub fn ring(&self) -> String {
        format!("{}/ring", self.0)
    }

    /// Key of a VM's report.
    pub fn told(&self, ordinal: u32) -> String {
        format!("{}/told/{ordinal}", self.0)
    }

    /// Key of the shares granted to a VM.
    pub fn share(&self, ordinal: u32) -> String {
        format!("{}/share/{ordinal}", self.0)
    }

    /// Key of the number of the last shares after which a VM gave up much of its own.
    pub fn given_up(&self) -> String {
        format!("{}/given_up", self.0)
    }

    fn numbers_key(&self) -> String {
        format!("{}/numbers", self.0)
    }

    /// The numbers of the newest shares and of the newest ring; `None` before the first.
    pub fn numbers(&self) -> Option<(u64, u64)> {
        host::shared(&self.numbers_key()).and_then(|(value, _)| pair(&value))
    }

    /// Publishes the numbers of the newest shares and of the newest ring.
    pub fn set_numbers(&self, (shares, ring): (u64, u64)) {
        host::share(&self.numbers_key(), &pair_bytes(shares, ring));
    }

    fn tellers_key(&self) -> String {
        format!("{}/tellers", self.0)
    }

    /// The ordinals of the VMs that make reports, and the compare-and-swap number for a change of the list.
    pub fn tellers(&self) -> (Vec<u32>, Option<u32>) {
        let Some((value, cas)) = host::shared(&self.tellers_key()) else {
            return (Vec::new(), None);
        };
        let words = value.chunks_exact(4);
        let ordinal = |word: &[u8]| Some(u32::from_le_bytes(word.try_into().ok()?));
        (words.filter_map(ordinal).collect(), Some(cas))
    }

    /// Replaces the list of VMs that make reports, unless another VM has changed it since `cas`.
    pub fn set_tellers(&self, tellers: &[u32], cas: Option<u32>) {
        let value: Vec<u8> = tellers.iter().flat_map(|vm| vm.to_le_bytes()).collect();
        // If another VM was faster, the next report tries again.
        let _ = host::share_if(&self.tellers_key(), &value, cas);
    }

    /// Adds this VM to those that make reports, unless there are [`MAX_VMS`] already.
    pub fn be_listed(&self, ordinal: u32) {
        let (mut tellers, cas) = self.tellers();
        if !tellers.contains(&ordinal) && tellers.len() < MAX_VMS {
            tellers.push(ordinal);
            self.set_tellers(&tellers, cas);
        }
    }
}

/// Reads two numbers from shared data: little-endian, 8 bytes each.
pub fn pair(bytes: &[u8]) -> Option<(u64, u64)> {
    let (first, second) = bytes.split_at_checked(8)?;
    Some((
        u64::from_le_bytes(first.try_into().ok()?),
        u64::from_le_bytes(second.try_into().ok()?),
    ))
}

/// The encoding that [`pair`] reads.
pub fn pair_bytes(first: u64, second: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    bytes
}

/// A new ordinal for this VM, unique in the process, and the process's nonce, which its first VM chooses.
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
    // Other VMs were always faster; any unused number will do. Its high bit keeps it apart from those that were
    // counted.
    (host::seed() as u32 | 0x8000_0000, 0)
}
