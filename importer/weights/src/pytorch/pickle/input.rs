//! The bytes of a pickle: sizes, lines, and the ways in which it spells numbers and texts.

use crate::{Result, WeightsError, limits};

/// A pickle and the position in it.
pub(super) struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The position of the next byte.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// The next bytes.
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count);
        let bytes = end.and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or_else(|| {
            let left = self.bytes.len().saturating_sub(self.at);
            WeightsError::pickle(format!("it ends early: {count} bytes are needed, {left} are left"))
        })?;
        self.at += count;
        Ok(bytes)
    }

    /// Checks that as many bytes follow.
    pub(super) fn expect(&self, count: usize) -> Result<()> {
        let mut ahead = Input { bytes: self.bytes, at: self.at };
        ahead.take(count).map(|_| ())
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// The next bytes, as many as the caller has places.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        bytes.first_chunk().copied().ok_or_else(|| WeightsError::pickle("it ends early"))
    }

    /// A size in as many little-endian bytes.
    pub(super) fn size<const N: usize>(&mut self) -> Result<usize> {
        let bytes = self.array::<N>()?;
        let mut wide = [0; 8];
        wide.iter_mut().zip(bytes).for_each(|(wide, byte)| *wide = byte);
        usize::try_from(u64::from_le_bytes(wide))
            .map_err(|_| WeightsError::pickle("a size is beyond any memory"))
    }

    /// Bytes with their size before them.
    pub(super) fn sized<const N: usize>(&mut self) -> Result<&'a [u8]> {
        let size = self.size::<N>()?;
        self.take(size)
    }

    /// Bytes with a signed size before them, as the oldest opcodes have it.
    pub(super) fn signed_sized(&mut self) -> Result<&'a [u8]> {
        let size = i32::from_le_bytes(self.array()?);
        let size = usize::try_from(size).map_err(|_| WeightsError::pickle("a size is negative"))?;
        self.take(size)
    }

    /// The bytes up to the end of the line.
    pub(super) fn line(&mut self) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| WeightsError::pickle("it ends inside a line"))?;
        let line = self.take(end)?;
        self.take(1)?;
        Ok(line)
    }

    /// The line as text.
    pub(super) fn text_line(&mut self) -> Result<&'a str> {
        utf8(self.line()?)
    }
}

/// Bytes that must be text.
pub(super) fn utf8(bytes: &[u8]) -> Result<&str> {
    core::str::from_utf8(bytes).map_err(|_| WeightsError::pickle("a text is not UTF-8"))
}

/// An integer as the pickle has it: of 64 bits, or in decimal.
pub(super) enum Integer {
    Small(i64),
    Big(String),
}

/// An integer in decimal.
pub(super) fn parse_integer(text: &str) -> Result<Integer> {
    let text = text.trim();
    if let Ok(value) = text.parse() {
        return Ok(Integer::Small(value));
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(WeightsError::pickle("a number is no decimal integer"));
    }
    check_digits(digits.len())?;
    Ok(Integer::Big(text.to_owned()))
}

/// An integer in little-endian two's complement.
pub(super) fn read_integer(bytes: &[u8]) -> Result<Integer> {
    let negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
    if bytes.len() <= 8 {
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        wide.iter_mut().zip(bytes).for_each(|(wide, byte)| *wide = *byte);
        return Ok(Integer::Small(i64::from_le_bytes(wide)));
    }
    // A digit is more than 3.3 bits, so this bounds the quadratic work below as well.
    check_digits(bytes.len().saturating_mul(5) / 2)?;
    let filler = if negative { 0xff } else { 0 };
    let (chunks, rest) = bytes.as_chunks::<8>();
    let mut last = [filler; 8];
    last.iter_mut().zip(rest).for_each(|(wide, byte)| *wide = *byte);
    let words =
        chunks.iter().chain((!rest.is_empty()).then_some(&last)).map(|word| u64::from_le_bytes(*word));
    let mut magnitude: Vec<u64> = words.collect();
    if negative {
        let mut carry = true;
        for word in &mut magnitude {
            (*word, carry) = (!*word).overflowing_add(u64::from(carry));
        }
    }
    parse_integer(&decimal(magnitude, negative))
}

/// The highest power of ten that a word holds, and its digits.
const CHUNK: (u64, usize) = (10_000_000_000_000_000_000, 19);

/// A number of little-endian words in decimal.
fn decimal(mut magnitude: Vec<u64>, negative: bool) -> String {
    let mut chunks = Vec::new();
    while !magnitude.is_empty() {
        let mut remainder = 0;
        for word in magnitude.iter_mut().rev() {
            let value = u128::from(remainder) << 64 | u128::from(*word);
            // Both fit: the remainder is below the divisor.
            *word = (value / u128::from(CHUNK.0)) as u64;
            remainder = (value % u128::from(CHUNK.0)) as u64;
        }
        chunks.push(remainder);
        while magnitude.last() == Some(&0) {
            magnitude.pop();
        }
    }
    let mut text = String::from(if negative { "-" } else { "" });
    let mut chunks = chunks.into_iter().rev();
    text.push_str(&chunks.next().unwrap_or(0).to_string());
    for chunk in chunks {
        text.push_str(&format!("{chunk:0width$}", width = CHUNK.1));
    }
    text
}

fn check_digits(digits: usize) -> Result<()> {
    if digits > limits::MAX_DIGITS {
        return Err(WeightsError::limit("an integer has too many digits", limits::MAX_DIGITS));
    }
    Ok(())
}

/// A float as Python prints it.
pub(super) fn parse_float(text: &str) -> Result<f64> {
    text.trim().parse().map_err(|_| WeightsError::pickle("a number is no float"))
}

/// A string literal of Python 2, with its quotes, as bytes.
pub(super) fn unquote(line: &[u8]) -> Result<Vec<u8>> {
    let inner = match line.trim_ascii() {
        [first @ (b'\'' | b'"'), inner @ .., last] if first == last => inner,
        _ => return Err(WeightsError::pickle("a string has no quotes")),
    };
    let mut bytes = inner.iter().copied();
    let mut out = Vec::with_capacity(inner.len());
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'n') => out.push(b'\n'),
            Some(b't') => out.push(b'\t'),
            Some(b'r') => out.push(b'\r'),
            Some(b'x') => {
                let code = bytes.next().zip(bytes.next()).and_then(|(high, low)| hex(&[high, low]));
                let code = code.and_then(|code| u8::try_from(code).ok());
                out.push(code.ok_or_else(|| WeightsError::pickle("a string has a broken escape"))?);
            }
            Some(quoted @ (b'\\' | b'\'' | b'"')) => out.push(quoted),
            _ => return Err(WeightsError::pickle("a string has an unknown escape")),
        }
    }
    Ok(out)
}

/// A text of protocol 0: Latin-1, and escapes for everything beyond.
pub(super) fn unescape(line: &[u8]) -> Result<String> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    let mut high = None;
    while let Some((first, after)) = rest.split_first() {
        let (code, after) = match (first, after) {
            (b'\\', [b'u', digits @ ..]) => escaped(digits, 4)?,
            (b'\\', [b'U', digits @ ..]) => escaped(digits, 8)?,
            _ => (u32::from(*first), after),
        };
        rest = after;
        // Two halves of one character, as narrow builds of Python 2 wrote them.
        let code = match (high.take(), code) {
            (None, 0xd800..0xdc00) => {
                high = Some(code);
                continue;
            }
            (Some(high), 0xdc00..0xe000) => 0x10000 + ((high - 0xd800) << 10) + (code - 0xdc00),
            (None, code) => code,
            (Some(_), _) => return Err(WeightsError::pickle("a text has half a character")),
        };
        text.push(char::from_u32(code).ok_or_else(|| WeightsError::pickle("a text has half a character"))?);
    }
    if high.is_some() { Err(WeightsError::pickle("a text has half a character")) } else { Ok(text) }
}

fn escaped(digits: &[u8], count: usize) -> Result<(u32, &[u8])> {
    let (digits, rest) = digits.split_at_checked(count).unwrap_or((&[], digits));
    let code = hex(digits).ok_or_else(|| WeightsError::pickle("a text has a broken escape"))?;
    Ok((code, rest))
}

fn hex(digits: &[u8]) -> Option<u32> {
    let text =
        core::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u32::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(integer: Integer) -> String {
        match integer {
            Integer::Small(value) => value.to_string(),
            Integer::Big(digits) => digits,
        }
    }

    #[test]
    fn integers_of_any_size() {
        let mut big = vec![0; 9];
        big.push(1);
        assert_eq!(shown(read_integer(&big).unwrap()), "4722366482869645213696");
        assert_eq!(shown(read_integer(&[0, 0, 0, 0, 0, 0, 0, 0, 0xff]).unwrap()), "-18446744073709551616");
        assert_eq!(shown(read_integer(&[0xff; 12]).unwrap()), "-1");
        assert_eq!(shown(read_integer(&[0; 20]).unwrap()), "0");
        let bytes = (10_u128.pow(38) * 2).to_le_bytes().into_iter().chain([0]).collect::<Vec<_>>();
        assert_eq!(shown(read_integer(&bytes).unwrap()), "200000000000000000000000000000000000000");
        assert_eq!(shown(read_integer(&[]).unwrap()), "0");
        assert_eq!(shown(read_integer(&[0x80]).unwrap()), "-128");
        assert!(read_integer(&[1; 5000]).is_err());
    }

    #[test]
    fn texts_of_protocol_0() {
        assert_eq!(unescape(b"a\\u00fc\\U0001f980\xfc\\n").unwrap(), "aü🦀ü\\n");
        assert_eq!(unescape(b"\\ud83e\\udd80").unwrap(), "🦀");
        assert!(unescape(b"\\ud83e").is_err());
        assert!(unescape(b"\\u12").is_err());
        assert_eq!(unquote(b"'a\\'\\x41\\n'").unwrap(), b"a'A\n");
        assert!(unquote(b"'a\"").is_err());
        assert!(unquote(b"'").is_err());
    }
}
