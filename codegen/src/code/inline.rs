//! Puts values that are used once, at once, where they are used: `relu(self.conv1.forward(x))`.

use super::{Block, Code, Statement};
use kiln_importer::ir::ValueId;
use std::collections::BTreeSet;

/// Calls in one expression; more are hard to read.
const MAX_CALLS: usize = 6;
/// Calls around a layer's or module's call.
const MAX_AROUND_LAYER: usize = 3;

/// Inlines in a function's body. Values in `kept` stay variables.
pub fn inline(block: &mut Block, kept: &BTreeSet<ValueId>) {
    hoist(block);
    let mut i = 0;
    while i < block.statements.len() {
        if let Statement::If { then, otherwise, .. } = &mut block.statements[i] {
            inline(then, kept);
            inline(otherwise, kept);
        }
        if i == 0 || !fold_into_next(block, i, kept) {
            i += 1;
        } else {
            i -= 1;
        }
    }
    // The last statement may become the result itself.
    let single = match block.statements.last() {
        Some(Statement::Bind { outputs, .. }) => {
            outputs.iter().map(|&output| Code::Use(output)).eq(block.results.iter().cloned())
        }
        _ => false,
    };
    if single && let Some(Statement::Bind { code, .. }) = block.statements.pop() {
        block.results = vec![code];
    }
}

/// Moves what only changes the form of one value up to where that value is made, so that they become one expression.
fn hoist(block: &mut Block) {
    for i in 1..block.statements.len() {
        let Statement::Bind { code, .. } = &block.statements[i] else { continue };
        let &[value] = code.values().as_slice() else { continue };
        let mut plain = matches!(code, Code::Method(..));
        code.visit(&mut |part| {
            let sized = matches!(part, Code::Size(dim) | Code::Integer(dim) if dim.as_constant().is_none());
            plain &= !sized && !matches!(part, Code::Layer(..) | Code::Module(..) | Code::Device);
        });
        let maker = block.statements[..i].iter().position(|statement| statement.outputs() == [value]);
        if let Some(at) = maker.filter(|&at| plain && at + 1 < i && block.count(value) == 1) {
            block.statements[at + 1..=i].rotate_right(1);
        }
    }
}

/// Folds statement `i - 1` into statement `i`.
fn fold_into_next(block: &mut Block, i: usize, kept: &BTreeSet<ValueId>) -> bool {
    let Statement::Bind { outputs, code: producer } = &block.statements[i - 1] else { return false };
    let &[value] = outputs.as_slice() else { return false };
    if kept.contains(&value) || block.count(value) != 1 || matches!(producer, Code::Make(..)) {
        return false;
    }
    let producer = producer.clone();
    let target = match &mut block.statements[i] {
        Statement::Bind { code, .. } => code,
        Statement::Loop { init, .. } if *init == Code::Use(value) => {
            *init = producer;
            block.statements.remove(i - 1);
            return true;
        }
        _ => return false,
    };
    if is_short_parameter(&producer)
        && let Some(place) = place_of(target, value)
    {
        *place = producer;
        block.statements.remove(i - 1);
        return true;
    }
    if !reads_well(&producer, target) {
        return false;
    }
    let Some(place) = head(target).filter(|place| **place == Code::Use(value)) else { return false };
    *place = producer;
    block.statements.remove(i - 1);
    true
}

/// Whether it is a parameter of the module in another form: `self.wte.weight.val().transpose()`. It may stand anywhere.
fn is_short_parameter(code: &Code) -> bool {
    match code {
        Code::Held(_) | Code::Parameter(_) => true,
        Code::Method(receiver, _, _, args) if args.len() <= 2 => {
            is_short_parameter(receiver) && args.iter().all(|arg| matches!(arg, Code::Int(_)))
        }
        _ => false,
    }
}

/// Where a value is used.
fn place_of(code: &mut Code, value: ValueId) -> Option<&mut Code> {
    if *code == Code::Use(value) {
        return Some(code);
    }
    code.parts_mut().into_iter().find_map(|part| place_of(part, value))
}

/// The part that Rust evaluates first; putting an expression there changes no order. Arguments of inner calls are left
/// alone: what stands there is hard to see.
fn head(code: &mut Code) -> Option<&mut Code> {
    match code {
        Code::Call(_, args) | Code::Layer(_, _, args) | Code::Module(_, args) => {
            args.first_mut().and_then(receiver)
        }
        code => receiver(code),
    }
}

fn receiver(code: &mut Code) -> Option<&mut Code> {
    match code {
        Code::Use(_) => Some(code),
        Code::Method(inner, ..) => receiver(inner),
        Code::Infix(a, ..) => receiver(a),
        Code::Prefix(_, a) => receiver(a),
        _ => None,
    }
}

fn calls(code: &Code) -> usize {
    let mut n = 0;
    code.visit(&mut |part| {
        n += usize::from(matches!(
            part,
            Code::Call(..) | Code::Method(..) | Code::Layer(..) | Code::Module(..)
        ));
        n += usize::from(matches!(part, Code::Infix(..)));
    });
    n
}

fn has_module(code: &Code) -> bool {
    let mut found = false;
    code.visit(&mut |part| found |= matches!(part, Code::Layer(..) | Code::Module(..)));
    found
}

/// Whether the producer, put at the head of the consumer, makes an expression that people would write.
fn reads_well(producer: &Code, consumer: &Code) -> bool {
    let total = calls(producer) + calls(consumer);
    if total > MAX_CALLS {
        return false;
    }
    match consumer {
        Code::Method(..) | Code::Infix(..) | Code::Prefix(..) => {
            // A sum reads as `a + b`; what stands around it starts anew.
            let sum = matches!(producer, Code::Infix(..)) && matches!(consumer, Code::Method(..));
            !sum && (!has_module(producer) || total <= MAX_AROUND_LAYER + 1)
        }
        // `relu(self.conv1.forward(x))`, but no calls in calls in calls.
        Code::Call(_, args) => args.len() <= 2 && calls(consumer) == 1 && total <= MAX_AROUND_LAYER,
        Code::Layer(_, _, args) => args.len() == 1 && !has_module(producer) && calls(producer) <= 1,
        _ => false,
    }
}
