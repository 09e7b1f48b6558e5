//! Parses statements and the text as a whole.

use super::expression::no_pointers;
use super::{Failed, Parsed, Parser};
use crate::ast::{Expr, ExprKind, Function, Section, Stmt, StmtKind, Text};
use crate::diagnostics::{Diagnostic, Span};
use crate::lexer::TokenKind;

/// Largest number of labels of one `switch`. The value is compared with each label in turn.
const MAX_LABELS: u32 = 64;

impl Parser<'_> {
    /// Parses the whole text. Ignores one pair of braces around all of it.
    pub(super) fn text(mut self) -> Text {
        let end = if self.wrapped_in_braces() {
            self.advance();
            self.tokens.len() - 2
        } else {
            self.tokens.len() - 1
        };
        let mut text = Text { functions: Vec::new(), statements: Vec::new(), calls: Vec::new() };
        while self.at < end {
            let before = self.at;
            if self.top(&mut text).is_err() {
                self.recover(before);
            }
        }
        text.calls = self.calls;
        text
    }

    /// Whether the last brace closes the brace that opens the text.
    fn wrapped_in_braces(&self) -> bool {
        let mut open = 0u32;
        for (place, token) in self.tokens.iter().enumerate() {
            match token.kind {
                TokenKind::Punct("{") => open += 1,
                TokenKind::Punct("}") => open = open.saturating_sub(1),
                _ => {}
            }
            if open == 0 {
                return place > 0 && place + 2 == self.tokens.len();
            }
        }
        false
    }

    /// Parses a function, a declaration or a statement.
    fn top(&mut self, text: &mut Text) -> Parsed<()> {
        if self.at_punct("}") {
            let error = Diagnostic::new(self.span(), "this brace closes no block", "no matching `{`");
            self.report(error.help("remove it, or remove an extra `}` above"));
            self.advance();
            return Ok(());
        }
        if self.defines_without_result() {
            return self.fail_without_result(self.span());
        }
        if !self.type_follows(0) {
            text.statements.push(self.statement()?);
            return Ok(());
        }
        let start = self.span();
        let head = self.head()?;
        if self.kind() == TokenKind::Name && self.kind_after(1) == TokenKind::Punct("(") {
            let function: Function = self.function(head)?;
            text.functions.push(function);
            return Ok(());
        }
        let declaration = self.declaration(head)?;
        text.statements.push(Stmt { kind: StmtKind::Declare(declaration), span: self.since(start) });
        Ok(())
    }

    /// After an error, skips to the next statement of this block. `before` is the index at which the failed
    /// statement began.
    fn recover(&mut self, before: usize) {
        let mut open = self.braces_since(before);
        loop {
            match self.kind() {
                TokenKind::End => return,
                TokenKind::Punct("{") => open += 1,
                TokenKind::Punct("}") if open == 0 && self.at > before => return,
                TokenKind::Punct("}") if open == 1 => {
                    self.advance();
                    return;
                }
                TokenKind::Punct("}") => open = open.saturating_sub(1),
                TokenKind::Punct(";") | TokenKind::LineEnd if open == 0 => {
                    self.advance();
                    return;
                }
                // A missing semicolon: the keyword at the start of this line begins a new statement.
                TokenKind::Keyword(word)
                    if open == 0 && self.at > before && begins_statement(word) && self.starts_new_line() =>
                {
                    return;
                }
                _ => {}
            }
            self.advance();
        }
    }

    /// Number of braces opened since `before` and not closed.
    fn braces_since(&self, before: usize) -> u32 {
        let mut open = 0u32;
        for token in &self.tokens[before..self.at] {
            match token.kind {
                TokenKind::Punct("{") => open += 1,
                TokenKind::Punct("}") => open = open.saturating_sub(1),
                _ => {}
            }
        }
        open
    }

    /// Parses `{ … }`; `what` names it in messages.
    pub(super) fn block(&mut self, what: &str) -> Parsed<Vec<Stmt>> {
        let open = self.expect("{", &format!("before {what}"))?;
        let begin = self.typedefs.enter();
        let statements = self.statements();
        self.typedefs.leave(begin);
        if self.at_label() {
            return self.fail_case();
        }
        if !self.take_punct("}") {
            return self.fail_unclosed(open);
        }
        Ok(statements)
    }

    fn fail_unclosed<T>(&mut self, open: Span) -> Parsed<T> {
        let found = self.found();
        let error = Diagnostic::new(open, "this brace is never closed", "opened here");
        self.fail(error.help(format!("add its `}}` before {found}")))
    }

    /// Parses statements up to a closing brace or a label of a `switch`.
    fn statements(&mut self) -> Vec<Stmt> {
        let mut list = Vec::new();
        while !self.at_punct("}") && self.kind() != TokenKind::End && !self.at_label() {
            let before = self.at;
            match self.statement() {
                Ok(statement) => list.push(statement),
                Err(Failed) => self.recover(before),
            }
        }
        list
    }

    fn at_label(&self) -> bool {
        self.at_keyword("case") || self.at_keyword("default")
    }

    fn statement(&mut self) -> Parsed<Stmt> {
        self.nested(|parser| {
            let start = parser.span();
            let kind = parser.statement_kind()?;
            Ok(Stmt { kind, span: parser.since(start) })
        })
    }

    fn statement_kind(&mut self) -> Parsed<StmtKind> {
        if self.type_follows(0) {
            return self.local_declaration();
        }
        match self.kind() {
            TokenKind::Punct(";") => {
                self.advance();
                Ok(StmtKind::Empty)
            }
            TokenKind::Punct("{") => Ok(StmtKind::Block(self.block("the statements")?)),
            TokenKind::Define => self.define().map(|(name, value)| StmtKind::Define(name, value)),
            TokenKind::Keyword("if") => self.condition(),
            TokenKind::Keyword("while") => self.while_loop(),
            TokenKind::Keyword("do") => self.do_loop(),
            TokenKind::Keyword("for") => self.for_loop(),
            TokenKind::Keyword("switch") => self.switch(),
            TokenKind::Keyword("break") => self.jump(StmtKind::Break),
            TokenKind::Keyword("continue") => self.jump(StmtKind::Continue),
            TokenKind::Keyword("return") => self.return_statement(),
            TokenKind::Keyword("goto") => self.fail_goto(),
            TokenKind::Keyword("else") => self.fail_else(),
            TokenKind::Keyword("case" | "default") => self.fail_case(),
            _ => self.expression_statement(),
        }
    }

    fn local_declaration(&mut self) -> Parsed<StmtKind> {
        let head = self.head()?;
        if self.kind() == TokenKind::Name && self.kind_after(1) == TokenKind::Punct("(") {
            let error = Diagnostic::new(self.span(), "a function inside another function", "not allowed here");
            return self.fail(error.help("move it out of the function, before the statements"));
        }
        Ok(StmtKind::Declare(self.declaration(head)?))
    }

    fn expression_statement(&mut self) -> Parsed<StmtKind> {
        if self.kind() == TokenKind::Name && self.kind_after(1) == TokenKind::Punct(":") {
            let error = Diagnostic::new(self.span(), "E-code has no `goto` and no labels", "a label");
            return self.fail(error.help("use a loop with `break` or `continue`, or a function with `return`"));
        }
        if self.at_punct("*") {
            return self.fail(no_pointers(self.span(), "this follows a pointer"));
        }
        let value = self.expression()?;
        if let (ExprKind::Call(name, _), true) = (&value.kind, self.at_punct("{")) {
            return self.fail_without_result(name.span);
        }
        self.expect(";", "after the statement")?;
        Ok(StmtKind::Expr(value))
    }

    /// Whether a definition such as `main(int rate) { … }` follows. The name of a type alone is an argument.
    fn defines_without_result(&self) -> bool {
        let is_call = self.kind() == TokenKind::Name && self.kind_after(1) == TokenKind::Punct("(");
        is_call && self.type_follows(2) && !matches!(self.kind_after(3), TokenKind::Punct("," | ")"))
    }

    /// A definition such as `main() { … }`. In old C its result is an `int`.
    fn fail_without_result<T>(&mut self, name: Span) -> Parsed<T> {
        let word = name.of(self.text);
        let message = format!("the function `{word}` has no type for its result");
        let error = Diagnostic::new(name, message, "expected a type");
        self.fail(error.help(format!("write the type before the name: `int {word}(…)`")))
    }

    fn in_parentheses(&mut self, what: &str) -> Parsed<Expr> {
        self.expect("(", &format!("before {what}"))?;
        let value = self.expression()?;
        self.expect(")", &format!("after {what}"))?;
        Ok(value)
    }

    fn condition(&mut self) -> Parsed<StmtKind> {
        self.advance();
        let condition = self.in_parentheses("the condition of `if`")?;
        let then = Box::new(self.statement()?);
        let otherwise = if self.take_keyword("else") { Some(Box::new(self.statement()?)) } else { None };
        Ok(StmtKind::If { condition, then, otherwise })
    }

    fn while_loop(&mut self) -> Parsed<StmtKind> {
        let keyword = self.advance().span;
        let condition = Some(self.in_parentheses("the condition of `while`")?);
        let body = Box::new(self.statement()?);
        Ok(StmtKind::Loop { keyword, first: None, condition, tests_after: false, step: None, body })
    }

    fn do_loop(&mut self) -> Parsed<StmtKind> {
        let keyword = self.advance().span;
        let body = Box::new(self.statement()?);
        if !self.take_keyword("while") {
            let error = Diagnostic::new(self.span(), "`do` without its `while`", "expected `while` here");
            return self.fail(error.help("write `do { … } while (condition);`"));
        }
        let condition = Some(self.in_parentheses("the condition of `while`")?);
        self.expect(";", "after the condition")?;
        Ok(StmtKind::Loop { keyword, first: None, condition, tests_after: true, step: None, body })
    }

    fn for_loop(&mut self) -> Parsed<StmtKind> {
        let begin = self.typedefs.enter();
        let parsed = self.parts_of_for();
        self.typedefs.leave(begin);
        parsed
    }

    fn parts_of_for(&mut self) -> Parsed<StmtKind> {
        let keyword = self.advance().span;
        self.expect("(", "after `for`")?;
        let first = self.first_of_for()?;
        let condition = if self.at_punct(";") { None } else { Some(self.expression()?) };
        self.expect(";", "after the condition of `for`")?;
        let step = if self.at_punct(")") { None } else { Some(self.expression()?) };
        self.expect(")", "after the step of `for`")?;
        let body = Box::new(self.statement()?);
        Ok(StmtKind::Loop { keyword, first, condition, tests_after: false, step, body })
    }

    fn first_of_for(&mut self) -> Parsed<Option<Box<Stmt>>> {
        let start = self.span();
        if self.take_punct(";") {
            return Ok(None);
        }
        let kind = if self.type_follows(0) { self.local_declaration()? } else { self.expression_statement()? };
        Ok(Some(Box::new(Stmt { kind, span: self.since(start) })))
    }

    fn switch(&mut self) -> Parsed<StmtKind> {
        let keyword = self.advance().span;
        let value = self.in_parentheses("the value of `switch`")?;
        let open = self.expect("{", "after the value of `switch`")?;
        let sections = self.sections()?;
        if !self.take_punct("}") {
            return self.fail_unclosed(open);
        }
        Ok(StmtKind::Switch { keyword, value, sections })
    }

    fn sections(&mut self) -> Parsed<Vec<Section>> {
        let (depth, mut labels) = (self.depth, 0);
        let mut sections = Vec::new();
        while !self.at_punct("}") && self.kind() != TokenKind::End {
            let section = self.labels(&mut labels)?;
            // Each section becomes an `else` of the sections before it; `default`, at any place, becomes the last
            // `else`.
            let is_default = section.iter().any(|(value, _)| value.is_none());
            self.depth = depth + if is_default { MAX_LABELS } else { sections.len() as u32 };
            let begin = self.typedefs.enter();
            sections.push(Section { labels: section, body: self.statements() });
            self.typedefs.leave(begin);
            self.depth = depth;
        }
        Ok(sections)
    }

    /// Parses the labels before a section. `count` counts the labels of the whole `switch`.
    fn labels(&mut self, count: &mut u32) -> Parsed<Vec<(Option<Expr>, Span)>> {
        if !self.at_label() {
            let error = Diagnostic::new(self.span(), "a `switch` must begin with a `case`", "before the first `case`");
            return self.fail(error.help("move it before the `switch`, or after one of its labels"));
        }
        let mut labels = Vec::new();
        while self.at_label() {
            labels.push(self.case()?);
            *count += 1;
            if *count > MAX_LABELS {
                let message = format!("this `switch` has more than {MAX_LABELS} labels");
                let error = Diagnostic::new(self.last_span(), message, "this label exceeds the limit");
                return self.fail(error.help("look the result up in a `const` array, or use several functions"));
            }
        }
        Ok(labels)
    }

    fn case(&mut self) -> Parsed<(Option<Expr>, Span)> {
        let start = self.span();
        let is_default = self.advance().kind == TokenKind::Keyword("default");
        let value = if is_default { None } else { Some(self.conditional()?) };
        let span = self.since(start);
        self.expect(":", "after the `case`")?;
        Ok((value, span))
    }

    fn jump(&mut self, kind: StmtKind) -> Parsed<StmtKind> {
        let word = self.advance().span.of(self.text);
        self.expect(";", &format!("after `{word}`"))?;
        Ok(kind)
    }

    fn return_statement(&mut self) -> Parsed<StmtKind> {
        self.advance();
        let value = if self.at_punct(";") { None } else { Some(self.expression()?) };
        self.expect(";", "after `return`")?;
        Ok(StmtKind::Return(value))
    }

    fn fail_goto(&mut self) -> Parsed<StmtKind> {
        let error = Diagnostic::new(self.span(), "`goto` is not supported", "not part of E-code");
        self.fail(error.help("use a loop with `break` or `continue`, or a function with `return`"))
    }

    fn fail_else(&mut self) -> Parsed<StmtKind> {
        let error = Diagnostic::new(self.span(), "`else` without its `if`", "no `if` ends directly before it");
        self.fail(error.help("put braces around the statements between `if (…)` and `else`"))
    }

    fn fail_case<T>(&mut self) -> Parsed<T> {
        let word = self.found();
        self.fail(Diagnostic::new(self.span(), format!("{word} outside a `switch`"), "no `switch` encloses it"))
    }
}

fn begins_statement(word: &str) -> bool {
    matches!(word, "if" | "for" | "while" | "do" | "switch" | "break" | "continue" | "return" | "static" | "struct")
}
