//! Puts values that are used once, at once, where they are used: `relu(self.conv1.forward(x))`.

use super::{Block, Code, Statement};
use crate::ids::VarId;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Calls in one expression; more are hard to read.
const MAX_CALLS: usize = 6;
/// Calls around a layer's or module's call.
const MAX_AROUND_LAYER: usize = 3;
/// Variables in an expression; in one of more, nothing is put anywhere but at its beginning.
const MAX_VARS: usize = 32;

/// Inlines in a function's body. Those in `kept` stay variables.
pub fn inline(block: &mut Block, kept: &HashSet<VarId>) {
    inline_statements(block, kept);
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

fn inline_statements(block: &mut Block, kept: &HashSet<VarId>) {
    let uses = block.uses();
    hoist(block, &uses);
    let mut done: Vec<Statement> = Vec::with_capacity(block.statements.len());
    for mut statement in std::mem::take(&mut block.statements) {
        match &mut statement {
            Statement::If { then, otherwise, .. } => {
                inline(then, kept);
                inline(otherwise, kept);
            }
            // What rounds leave and carry on are several things, however many they are.
            Statement::Repeat(repeat) if repeat.body.results.len() == 1 => inline(&mut repeat.body, kept),
            Statement::Repeat(repeat) => inline_statements(&mut repeat.body, kept),
            Statement::Bind { .. }
            | Statement::Read { .. }
            | Statement::Optional { .. }
            | Statement::List { .. }
            | Statement::Push { .. }
            | Statement::Loop { .. } => {}
        }
        while let Some(before) = done.pop_if(|before| can_go(before, &statement, &uses, kept)) {
            put(before, &mut statement);
        }
        done.push(statement);
    }
    block.statements = done;
}

/// Moves what only changes the form of one value up to where that value is made, so that they become one expression.
fn hoist(block: &mut Block, uses: &HashMap<VarId, usize>) {
    let mut makers: HashMap<VarId, usize> = HashMap::new();
    for (i, statement) in block.statements.iter().enumerate() {
        if let &[output] = statement.outputs() {
            makers.insert(output, i);
        }
    }
    // The statement that each statement goes right behind.
    let mut behind: BTreeMap<usize, usize> = BTreeMap::new();
    for (i, statement) in block.statements.iter().enumerate() {
        if let Some(value) = only_reshapes(statement)
            && uses.get(&value) == Some(&1)
            && let Some(&maker) = makers.get(&value).filter(|&&maker| maker < i)
        {
            behind.insert(maker, i);
        }
    }
    let moved: HashSet<usize> = behind.values().copied().collect();
    let mut statements: Vec<Option<Statement>> = block.statements.drain(..).map(Some).collect();
    for start in (0..statements.len()).filter(|i| !moved.contains(i)) {
        let mut next = Some(start);
        while let Some(i) = next {
            block.statements.extend(statements[i].take());
            next = behind.get(&i).copied();
        }
    }
}

/// The one variable that a statement is made of, when all that it does is to call methods on it that need nothing else.
pub(super) fn only_reshapes(statement: &Statement) -> Option<VarId> {
    let Statement::Bind { code: code @ Code::Method(..), .. } = statement else { return None };
    let mut plain = true;
    code.visit(&mut |part| {
        let sized = matches!(part, Code::Size(dim) | Code::Integer(dim) if dim.as_constant().is_none());
        plain &= !sized && !matches!(part, Code::Layer(..) | Code::Module(..) | Code::Device);
    });
    match code.vars().as_slice() {
        &[value] if plain => Some(value),
        _ => None,
    }
}

/// Whether a statement can be put into the one after it.
fn can_go(
    before: &Statement,
    statement: &Statement,
    uses: &HashMap<VarId, usize>,
    kept: &HashSet<VarId>,
) -> bool {
    let Statement::Bind { outputs, code: producer } = before else { return false };
    let &[value] = outputs.as_slice() else { return false };
    if kept.contains(&value) || uses.get(&value) != Some(&1) {
        return false;
    }
    match statement {
        Statement::Repeat(repeat) => repeat.init.contains(&Code::Use(value)),
        _ if matches!(producer, Code::Make(..)) => false,
        Statement::Bind { code, .. } if goes_anywhere(producer, code, value) => true,
        Statement::Bind { code, .. } => {
            reads_well(producer, code) && head(code).is_some_and(|place| *place == Code::Use(value))
        }
        Statement::Loop { init, .. } => *init == Code::Use(value),
        Statement::Push { value: pushed, .. } => *pushed == Code::Use(value),
        Statement::List { .. }
        | Statement::Read { .. }
        | Statement::If { .. }
        | Statement::Optional { .. } => false,
    }
}

/// Whether a producer is so short that it may stand wherever its value is used.
fn goes_anywhere(producer: &Code, code: &Code, value: VarId) -> bool {
    is_short_parameter(producer, MAX_CALLS) && {
        let vars = code.vars();
        vars.len() <= MAX_VARS && vars.contains(&value)
    }
}

/// Puts a statement into the one after it, where its value is used.
fn put(before: Statement, statement: &mut Statement) {
    let Statement::Bind { outputs, code: producer } = before else { return };
    let Some(&value) = outputs.first() else { return };
    let place = match statement {
        Statement::Bind { code, .. }
        | Statement::Loop { init: code, .. }
        | Statement::Push { value: code, .. } => place_of(code, value),
        Statement::Repeat(repeat) => repeat.init.iter_mut().find(|code| **code == Code::Use(value)),
        Statement::List { .. }
        | Statement::Read { .. }
        | Statement::If { .. }
        | Statement::Optional { .. } => None,
    };
    if let Some(place) = place {
        *place = producer;
    }
}

/// Whether it is a parameter of the module in another form: `self.wte.weight.val().transpose()`. It may stand anywhere.
fn is_short_parameter(code: &Code, calls: usize) -> bool {
    match code {
        Code::Held(..) | Code::Parameter(_) => true,
        Code::Method(receiver, _, _, args) if args.len() <= 2 && calls > 0 => {
            is_short_parameter(receiver, calls - 1) && args.iter().all(|arg| matches!(arg, Code::Int(_)))
        }
        _ => false,
    }
}

/// Where a value is used.
fn place_of(code: &mut Code, value: VarId) -> Option<&mut Code> {
    if *code == Code::Use(value) {
        return Some(code);
    }
    code.parts_mut().into_iter().find_map(|part| place_of(part, value))
}

/// The part that Rust evaluates first; putting an expression there changes no order. Arguments of inner calls are left
/// alone: what stands there is hard to see.
fn head(code: &Code) -> Option<&Code> {
    match code {
        Code::Call(_, args) | Code::Layer(_, _, args) | Code::Module(_, args) => {
            args.first().and_then(receiver)
        }
        code => receiver(code),
    }
}

fn receiver(code: &Code) -> Option<&Code> {
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

/// Signs, which are no calls but make an expression deeper too.
fn prefixes(code: &Code) -> usize {
    let mut n = 0;
    code.visit(&mut |part| n += usize::from(matches!(part, Code::Prefix(..))));
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
    if total > MAX_CALLS || prefixes(producer) + prefixes(consumer) > MAX_CALLS {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Id;

    fn depth(code: &Code) -> usize {
        1 + code.parts().into_iter().map(depth).max().unwrap_or(0)
    }

    /// A chain in which each step is made of the one before.
    fn chain(first: Code, step: impl Fn(Code) -> Code) -> Block {
        let var = VarId::at;
        let bind = |i: usize, code| Statement::Bind { outputs: vec![var(i)], code };
        let mut statements = vec![bind(0, first)];
        statements.extend((1..1_000).map(|i| bind(i, step(Code::Use(var(i - 1))))));
        Block { statements, results: vec![Code::Use(var(999))] }
    }

    #[test]
    fn expressions_stay_shallow() {
        let parameter = Code::Parameter(crate::ids::FieldId::at(0));
        let method = |of| Code::Method(Box::new(of), "transpose".into(), Vec::new(), Vec::new());
        let negated = |of| Code::Prefix("-", Box::new(of));
        let sum = |of| Code::Infix(Box::new(of), "+", Box::new(Code::Int(1)));
        let chains = [
            chain(parameter.clone(), method),
            chain(parameter.clone(), negated),
            chain(parameter, sum),
            chain(Code::Use(VarId::at(5_000)), negated),
        ];
        for mut block in chains {
            inline(&mut block, &HashSet::new());
            let deepest = block.codes().into_iter().map(depth).max();
            assert!(deepest.is_some_and(|deepest| (3..16).contains(&deepest)), "{deepest:?}");
        }
    }

    #[test]
    fn a_value_that_is_kept_stays_a_variable() {
        let mut block = chain(Code::Use(VarId::at(5_000)), |of| Code::Prefix("-", Box::new(of)));
        let all: HashSet<VarId> = (0..1_000).map(VarId::at).collect();
        inline(&mut block, &all);
        assert_eq!(block.statements.len(), 999);
    }
}
