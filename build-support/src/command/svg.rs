//! Texts in SVG documents.

use super::plain;

/// A name of a file as text in an element (never in an attribute): what would end it is written as entities, and no more than 200 characters.
pub(super) fn escaped(label: &str) -> String {
    let shown: String = plain(label).chars().take(200).collect();
    shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
