//! Decides which uses of a variable move it: the last one.

use super::{Block, Code, Statement};
use crate::ids::VarId;
use std::collections::HashSet;

/// Makes every use but the last a clone, in a function's body.
pub fn decide_moves(block: &mut Block) {
    Live::default().block(block);
}

/// Variables that are used after the place in hand; code is looked at from its end to its beginning.
#[derive(Default)]
struct Live {
    vars: HashSet<VarId>,
    /// Variables in the order in which they came to be live, to take them back.
    order: Vec<VarId>,
}

impl Live {
    /// Adds a variable; whether it is new.
    fn insert(&mut self, var: VarId) -> bool {
        let new = self.vars.insert(var);
        if new {
            self.order.push(var);
        }
        new
    }

    /// Does something with what is live here, and takes back what that adds.
    fn apart(&mut self, run: impl FnOnce(&mut Self)) {
        let length = self.order.len();
        run(self);
        for var in self.order.drain(length..) {
            self.vars.remove(&var);
        }
    }

    fn block(&mut self, block: &mut Block) {
        for code in block.results.iter_mut().rev() {
            self.code(code);
        }
        for statement in block.statements.iter_mut().rev() {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &mut Statement) {
        match statement {
            Statement::Bind { code, .. } | Statement::Read { code, .. } => self.expression(code),
            Statement::If { then, otherwise, .. } => {
                self.apart(|live| live.block(then));
                self.apart(|live| live.block(otherwise));
                for var in then.codes().into_iter().chain(otherwise.codes()).flat_map(Code::vars) {
                    self.insert(var);
                }
            }
            Statement::Optional { code, otherwise, .. } => {
                self.apart(|live| live.code(otherwise));
                self.expression(code);
                for var in otherwise.vars() {
                    self.insert(var);
                }
            }
            Statement::Repeat(repeat) => {
                // What is around the body is needed again in the next round; what it carries is replaced.
                let mut defined: HashSet<VarId> = repeat.parameters.iter().copied().collect();
                for statement in repeat.body.all_statements() {
                    defined.extend(statement.outputs().iter().chain(statement.parameters()));
                }
                for var in repeat.body.codes().into_iter().flat_map(Code::vars) {
                    if !defined.contains(&var) {
                        self.insert(var);
                    }
                }
                self.apart(|live| live.block(&mut repeat.body));
                for code in repeat.init.iter_mut().rev() {
                    self.code(code);
                }
            }
            Statement::List { items, .. } => items.iter_mut().rev().for_each(|item| self.code(item)),
            Statement::Push { value, .. } => self.expression(value),
            Statement::Loop { init, args, .. } => {
                // The body runs many times, so nothing in it may move.
                for arg in args {
                    for var in arg.vars() {
                        self.insert(var);
                    }
                    self.code(arg);
                }
                self.expression(init);
            }
        }
    }

    /// One whole expression: what it borrows anywhere must not move elsewhere in it.
    fn expression(&mut self, code: &mut Code) {
        let mut borrowed = Vec::new();
        code.visit(&mut |part| {
            if let Code::Ref(inner) = part {
                borrowed.extend(inner.var());
            }
        });
        for var in borrowed {
            self.insert(var);
        }
        self.code(code);
    }

    fn code(&mut self, code: &mut Code) {
        match code {
            Code::Use(var) => {
                if !self.insert(*var) {
                    *code = Code::Clone(*var);
                }
            }
            Code::Ref(inner) if inner.var().is_some() => {
                if let Some(var) = inner.var() {
                    self.insert(var);
                    **inner = Code::Name(var);
                }
            }
            _ => {
                for part in code.parts_mut().into_iter().rev() {
                    self.code(part);
                }
            }
        }
    }
}
