//! Control flow is structure: code generation renders it itself, and there is nothing to spell.

use super::Expr;

/// An empty expression.
pub(super) fn spell() -> Expr {
    Expr::Tuple(Vec::new())
}
