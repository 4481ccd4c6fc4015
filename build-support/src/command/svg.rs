//! Texts in SVG documents.

use kiln_types::clipped;

/// A name of a file as text in an element (never in an attribute): what would end it is written as entities, and of long ones the first 200 characters.
pub(super) fn escaped(label: &str) -> String {
    let shown = clipped(label, 200);
    shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
