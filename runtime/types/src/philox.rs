//! Random numbers that are computed from a key and a position, not one from the other: whoever knows the key has the number at any
//! position, in any order.

/// The counter-based generator Philox 4x32 with 10 rounds (Salmon et al. 2011): four random words for each position.
#[derive(Clone, Copy, Debug)]
pub struct Philox {
    key: [u32; 2],
}

impl Philox {
    /// The generator with a key.
    pub fn new(key: u64) -> Self {
        Self { key: [key as u32, (key >> 32) as u32] }
    }

    /// The words at a position.
    pub fn block(&self, position: u64) -> [u32; 4] {
        self.blocks::<1>(position).map(|[word]| word)
    }

    /// The words at `N` positions from the first on: `words[w][n]` is word `w` at position `first + n`. Compiled into a function
    /// with vector instructions, it computes all positions at once.
    #[inline(always)]
    pub fn blocks<const N: usize>(&self, first: u64) -> [[u32; N]; 4] {
        let positions: [u64; N] = core::array::from_fn(|n| first.wrapping_add(n as u64));
        self.rounds([positions.map(|p| p as u32), positions.map(|p| (p >> 32) as u32), [0; N], [0; N]])
    }

    #[inline(always)]
    fn rounds<const N: usize>(&self, mut counter: [[u32; N]; 4]) -> [[u32; N]; 4] {
        let [mut first, mut second] = self.key;
        for _ in 0..10 {
            let [a, b, c, d] = counter;
            for n in 0..N {
                let low = u64::from(a[n]) * 0xD251_1F53;
                let high = u64::from(c[n]) * 0xCD9E_8D57;
                counter[0][n] = (high >> 32) as u32 ^ b[n] ^ first;
                counter[1][n] = high as u32;
                counter[2][n] = (low >> 32) as u32 ^ d[n] ^ second;
                counter[3][n] = low as u32;
            }
            first = first.wrapping_add(0x9E37_79B9);
            second = second.wrapping_add(0xBB67_AE85);
        }
        counter
    }

    /// Calls `f` with the position and the word of each of `count` elements, in order: element `i` has word `i % 4` of
    /// block `i / 4`.
    pub fn for_each(&self, count: usize, mut f: impl FnMut(usize, u32)) {
        for start in (0..count).step_by(4) {
            let words = self.block((start / 4) as u64);
            (start..count.min(start + 4)).zip(words).for_each(|(at, word)| f(at, word));
        }
    }

    /// What a word must be below for its element to be dropped.
    pub fn threshold(probability: f64) -> u64 {
        (probability.clamp(0.0, 1.0) * (1u64 << 32) as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Philox;
    use alloc::vec::Vec;

    /// The known answers of Random123, the authors' library.
    #[test]
    fn known_answers() {
        let rounds =
            |philox: Philox, counter: [u32; 4]| philox.rounds(counter.map(|x| [x])).map(|[word]| word);
        assert_eq!(rounds(Philox::new(0), [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            rounds(Philox::new(u64::MAX), [u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        let pi = Philox { key: [0xa409_3822, 0x299f_31d0] };
        assert_eq!(
            rounds(pi, [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn elements_share_blocks() {
        let philox = Philox::new(7);
        let mut words = Vec::new();
        philox.for_each(6, |at, word| words.push((at, word)));
        let (first, second) = (philox.block(0), philox.block(1));
        let expected = [first[0], first[1], first[2], first[3], second[0], second[1]];
        assert_eq!(words, expected.into_iter().enumerate().collect::<Vec<_>>());
        // Also where the low half of the position overflows.
        let at = u64::from(u32::MAX) - 1;
        let several = philox.blocks::<5>(at);
        for n in 0..5 {
            assert_eq!(philox.block(at + n as u64), several.map(|words| words[n]));
        }
        assert_eq!(Philox::threshold(0.5), 1 << 31);
        assert_eq!((Philox::threshold(0.0), Philox::threshold(1.0)), (0, 1 << 32));
    }
}
