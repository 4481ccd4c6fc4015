//! Decides which uses of a value move it: the last one.

use super::{Block, Code, Statement};
use kiln_importer::ir::ValueId;
use std::collections::BTreeSet;

/// Makes every use but the last a clone, in a function's body.
pub fn decide_moves(block: &mut Block) {
    decide_block(block, &BTreeSet::new());
}

/// `after` are the values that are used after the block.
fn decide_block(block: &mut Block, after: &BTreeSet<ValueId>) {
    let mut live = after.clone();
    for code in block.results.iter_mut().rev() {
        decide(code, &mut live);
    }
    for statement in block.statements.iter_mut().rev() {
        match statement {
            Statement::Bind { code, .. } | Statement::Read { code, .. } => expression(code, &mut live),
            Statement::If { then, otherwise, .. } => {
                decide_block(then, &live);
                decide_block(otherwise, &live);
                for code in then.codes().into_iter().chain(otherwise.codes()) {
                    live.extend(code.values());
                }
            }
            Statement::Optional { code, otherwise, .. } => {
                let mut without = live.clone();
                decide(otherwise, &mut without);
                expression(code, &mut live);
                live.extend(without);
            }
            Statement::Loop { init, args, .. } => {
                // The body runs many times, so nothing in it may move.
                for arg in args {
                    live.extend(arg.values());
                    decide(arg, &mut live);
                }
                expression(init, &mut live);
            }
        }
    }
}

/// One whole expression: what it borrows anywhere must not move elsewhere in it.
fn expression(code: &mut Code, live: &mut BTreeSet<ValueId>) {
    let mut borrowed = Vec::new();
    code.visit(&mut |part| {
        if let Code::Ref(inner) = part {
            borrowed.extend(inner.value());
        }
    });
    live.extend(borrowed);
    decide(code, live);
}

fn decide(code: &mut Code, live: &mut BTreeSet<ValueId>) {
    match code {
        Code::Use(value) => {
            if !live.insert(*value) {
                *code = Code::Clone(*value);
            }
        }
        Code::Ref(inner) if inner.value().is_some() => {
            if let Some(value) = inner.value() {
                live.insert(value);
                **inner = Code::Name(value);
            }
        }
        _ => {
            for part in code.parts_mut().into_iter().rev() {
                decide(part, live);
            }
        }
    }
}
