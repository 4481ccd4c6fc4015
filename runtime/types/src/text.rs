//! Text of strangers on its way to a person: a terminal, a report, a picture.

use core::fmt::{self, Write};

/// Whether a character does something other than be seen where it stands: it moves the cursor, colours, or reorders or hides text.
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Marks of direction, joiners, separators of lines and paragraphs.
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A name in a line of text: whatever it holds, it stays in the line and shows all of itself. Invisible characters are escaped as in
/// Rust, `\u{1b}`.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a>(pub &'a str);

/// As [`Line`], for text of several lines.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a>(pub &'a str);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escaped(self.0, is_invisible, f)
    }
}

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escaped(self.0, |c| c != '\n' && is_invisible(c), f)
    }
}

fn escaped(text: &str, escape: impl Fn(char) -> bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for c in text.chars() {
        if escape(c) { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn nothing_invisible_is_left() {
        let text = "\u{1b}[2J\u{9b}31m a\tb\r\n\u{202e}c\u{2028}\u{200b}ü日本 \"\\";
        assert_eq!(
            format!("{}", Line(text)),
            r#"\u{1b}[2J\u{9b}31m a\tb\r\n\u{202e}c\u{2028}\u{200b}ü日本 "\"#
        );
        assert_eq!(format!("{}", Lines("a\nb\u{7f}")), "a\nb\\u{7f}");
    }
}
