//! Text of strangers on its way to a person: a terminal, a report, a picture.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::{self, Write};

/// Whether a character does something other than be seen where it stands: it moves the cursor, colours, or reorders or hides text, or is a letter
/// of which nothing is seen (most of Unicode's property `Default_Ignorable_Code_Point`, but not what makes an emoji of a character).
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Marks of direction, joiners, separators of lines and paragraphs.
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            // Fillers of Hangul, vowels that Khmer leaves out, an empty pattern of Braille, a joiner of marks.
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{17b4}' | '\u{17b5}' | '\u{2800}' | '\u{34f}'
            // Selectors of variants, tags.
            | '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{fe00}'..='\u{fe0d}' | '\u{e0000}'..='\u{e0fff}')
        || is_no_character(c)
}

/// Whether it is one of the code points that are no characters, some of which XML does not allow.
fn is_no_character(c: char) -> bool {
    matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe
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

/// As [`Lines`], of no more than 2,000 characters: where the text goes on, an ellipsis follows. Keys, names and shapes in a hostile file are of any length.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a>(pub &'a str);

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 2000;
        match self.0.char_indices().nth(LONGEST) {
            Some((end, _)) => write!(f, "{}…", Lines(self.0.get(..end).unwrap_or_default())),
            None => Lines(self.0).fmt(f),
        }
    }
}

/// As [`Line`], of no more than `longest` characters of the name: where it goes on, an ellipsis follows.
pub fn clipped(name: &str, longest: usize) -> String {
    match name.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", Line(name.get(..end).unwrap_or_default())),
        None => Line(name).to_string(),
    }
}

/// A name in a sentence, [clipped] and in the quotes of code.
pub fn quoted(name: &str) -> String {
    const LONGEST: usize = 120;
    format!("`{}`", clipped(name, LONGEST))
}

fn escaped(text: &str, escape: impl Fn(char) -> bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    /// No script has more of them on a letter; what stacks them is drawn over the lines around.
    const MOST_MARKS: usize = 4;
    let mut marks = 0;
    for c in text.chars() {
        marks = if is_mark(c) { marks + 1 } else { 0 };
        let is_escaped = escape(c) || marks > MOST_MARKS;
        if is_escaped { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
    }
    Ok(())
}

/// Whether a character is drawn on the one before it. The standard library knows those, and escapes them where they begin a text.
fn is_mark(c: char) -> bool {
    !matches!(c, '"' | '\'' | '\\') && !is_invisible(c) && c.escape_debug().next() == Some('\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_invisible_is_left() {
        let text = "\u{1b}[2J\u{9b}31m a\tb\r\n\u{202e}c\u{2028}\u{200b}ü日本 \"\\";
        assert_eq!(
            format!("{}", Line(text)),
            r#"\u{1b}[2J\u{9b}31m a\tb\r\n\u{202e}c\u{2028}\u{200b}ü日本 "\"#
        );
        assert_eq!(format!("{}", Lines("a\nb\u{7f}")), "a\nb\\u{7f}");
        let empty = "\u{3164}\u{115f}\u{fe01}\u{2800}\u{ffff}\u{1fffe}";
        assert_eq!(format!("{}", Line(empty)), r"\u{3164}\u{115f}\u{fe01}\u{2800}\u{ffff}\u{1fffe}");
        assert_eq!(format!("{}", Line("models \u{2699}\u{fe0f}")), "models \u{2699}\u{fe0f}");
        for written in ["Việt", "e\u{301}\u{323}\u{308}\u{302}", "हिन्दी", "ภาษาไทย"]
        {
            assert_eq!(format!("{}", Line(written)), written);
        }
        let stacked = format!("{}", Line(&format!("a{}", "\u{301}".repeat(6))));
        assert_eq!(stacked, format!("a{}{}", "\u{301}".repeat(4), r"\u{301}\u{301}"));
    }

    #[test]
    fn long_names_are_clipped() {
        assert_eq!([clipped("ünder", 5), clipped("a\n\"ü\"", 3)], ["ünder", "a\\n\"…"]);
        assert_eq!(quoted("x\u{1b}"), r"`x\u{1b}`");
        assert_eq!(quoted(&"é".repeat(1000)), format!("`{}…`", "é".repeat(120)));
    }
}
