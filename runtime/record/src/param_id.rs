//! The identity of a parameter.

use alloc::string::{String, ToString};
use core::fmt;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Names one parameter of a module, in records and in optimizers.
///
/// It is written as Burn writes it: the eight little-endian bytes in base32 (RFC 4648's extended hex, lower case,
/// without padding), which gives 13 characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParamId {
    value: u64,
}

/// The digits of the base32 in use.
const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

impl ParamId {
    /// A new id, unlike all others of this process and, very likely, of any.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { value: mix(fresh()) }
    }

    /// The id of the parameter at a path: the same on every machine.
    pub fn from_path(path: &str) -> Self {
        // FNV-1a, then mixed so that short paths spread over all bits.
        let hash = path.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Self { value: mix(hash) }
    }

    /// The number.
    pub fn val(&self) -> u64 {
        self.value
    }

    /// The text of this id.
    pub fn serialize(self) -> String {
        let bytes = self.value.to_le_bytes();
        let digit = |index: usize| {
            let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1);
            let value = (0..5).fold(0, |value, offset| value << 1 | bit(index * 5 + offset));
            DIGITS.get(usize::from(value)).map_or('0', |digit| char::from(*digit))
        };
        (0..13).map(digit).collect()
    }

    /// The id that a text stands for. Texts of other forms (old records have UUIDs) are hashed.
    pub fn deserialize(text: &str) -> Self {
        decode(text).map_or_else(|| Self::from_path(text), |value| Self { value })
    }
}

impl Default for ParamId {
    fn default() -> Self {
        Self::new()
    }
}

impl From<u64> for ParamId {
    fn from(value: u64) -> Self {
        Self { value }
    }
}

impl fmt::Display for ParamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&ParamId::serialize(*self))
    }
}

impl Serialize for ParamId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&ParamId::serialize(*self))
    }
}

impl<'de> Deserialize<'de> for ParamId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_text(deserializer).map(|text| ParamId::deserialize(&text))
    }
}

/// Reads a text through `deserialize_str`, so that a binary format lends it and checks its length first.
pub(crate) fn deserialize_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Text;
    impl de::Visitor<'_> for Text {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_string())
        }

        fn visit_string<E: de::Error>(self, text: String) -> Result<String, E> {
            Ok(text)
        }
    }
    deserializer.deserialize_str(Text)
}

/// The inverse of [`ParamId::serialize`]; shorter texts stand for fewer bytes, the others being zero.
fn decode(text: &str) -> Option<u64> {
    if text.len() > 13 {
        return None;
    }
    let mut bytes = [0_u8; 8];
    for (index, digit) in text.bytes().enumerate() {
        let value = DIGITS.iter().position(|known| *known == digit.to_ascii_lowercase())?;
        for offset in 0..5 {
            let (at, bit) = (index * 5 + offset, value >> (4 - offset) & 1);
            match bytes.get_mut(at / 8) {
                Some(byte) => *byte |= (bit as u8) << (7 - at % 8),
                None if bit == 0 => {}
                None => return None,
            }
        }
    }
    Some(u64::from_le_bytes(bytes))
}

/// Spreads a number over all bits, one to one (the finalizer of SplitMix64).
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// A number that this process has not seen.
fn fresh() -> u64 {
    use core::sync::atomic::{AtomicUsize, Ordering};
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed) as u64;
    process_seed().wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A random number of this process.
#[cfg(feature = "std")]
fn process_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    static SEED: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *SEED.get_or_init(|| RandomState::new().hash_one(crate::replace::process()))
}

/// Without an operating system there is no randomness to draw on.
#[cfg(not(feature = "std"))]
fn process_seed() -> u64 {
    0x6b69_6c6e_0000_0001
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for value in [0, 1, 123_456, u64::MAX, 0x0123_4567_89ab_cdef] {
            let id = ParamId::from(value);
            let text = id.to_string();
            assert_eq!(text.len(), 13);
            assert_eq!(ParamId::deserialize(&text), id);
        }
    }

    #[test]
    fn text_is_base32_of_the_little_endian_bytes() {
        // 0x2d bytes give the bit pattern 00101101 repeated.
        assert_eq!(ParamId::from(u64::from_le_bytes([0x2d; 8])).to_string(), "5kmiqb9d5kmiq");
        let six = ParamId::deserialize("5kmiqb9d5k");
        assert_eq!(six.val().to_le_bytes(), [45, 45, 45, 45, 45, 45, 0, 0]);
    }

    #[test]
    fn foreign_texts_have_stable_ids() {
        let uuid = "30b82c23-788d-4d63-a743-ada258d5f13c";
        assert_eq!(ParamId::deserialize(uuid), ParamId::deserialize(uuid));
        assert_ne!(ParamId::new(), ParamId::new());
        assert_eq!(ParamId::from_path("fc.weight"), ParamId::from_path("fc.weight"));
    }
}
