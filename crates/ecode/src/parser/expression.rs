//! Parses expressions by precedence climbing.

use super::{MAX_NESTING, Parsed, Parser};
use crate::ast::{Expr, ExprKind, Ident, Operator, UnaryOp};
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::{BinaryOp, CompareOp};
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// Parses an expression, with commas.
    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        let mut left = self.assignment()?;
        while self.take_punct(",") {
            let right = self.assignment()?;
            let span = left.span.to(right.span);
            left = self.node(ExprKind::Comma(Box::new(left), Box::new(right)), span)?;
        }
        Ok(left)
    }

    /// Parses an expression without commas, as in lists.
    pub(super) fn assignment(&mut self) -> Parsed<Expr> {
        self.nested(|parser| {
            let left = parser.conditional()?;
            let Some(op) = parser.assignment_operator() else { return Ok(left) };
            let sign = parser.advance().span;
            parser.refuse_reversed(sign)?;
            let right = parser.assignment()?;
            let span = left.span.to(right.span);
            parser.node(ExprKind::Assign(op, sign, Box::new(left), Box::new(right)), span)
        })
    }

    /// `=>` and `=<`: the signs of a comparison in the wrong order.
    fn refuse_reversed(&mut self, sign: Span) -> Parsed<()> {
        let TokenKind::Punct(next @ (">" | "<")) = self.kind() else { return Ok(()) };
        if sign.of(self.text) != "=" || self.span().start != sign.end {
            return Ok(());
        }
        let error = Diagnostic::new(sign.to(self.span()), format!("`={next}` is not an operator"), "not an operator");
        self.fail(error.help(format!("write `{next}=`")))
    }

    fn assignment_operator(&self) -> Option<Option<BinaryOp>> {
        let TokenKind::Punct(sign) = self.kind() else { return None };
        if sign == "=" {
            return Some(None);
        }
        match binary(sign.strip_suffix('=')?) {
            Some((_, Operator::Value(op))) => Some(Some(op)),
            _ => None,
        }
    }

    /// Parses a conditional expression: C's form for constants, without assignments and commas.
    pub(super) fn conditional(&mut self) -> Parsed<Expr> {
        let condition = self.binary(0)?;
        if !self.take_punct("?") {
            return Ok(condition);
        }
        let (yes, no) = self.nested(|parser| {
            let yes = parser.expression()?;
            parser.expect(":", "between the two values of `?`")?;
            Ok((yes, parser.conditional()?))
        })?;
        let span = condition.span.to(no.span);
        self.node(ExprKind::Conditional(Box::new(condition), Box::new(yes), Box::new(no)), span)
    }

    /// Parses operators that bind tighter than `above`; operators of one level group from left to right.
    fn binary(&mut self, above: u8) -> Parsed<Expr> {
        let mut left = self.unary()?;
        while let TokenKind::Punct(sign) = self.kind()
            && let Some((level, op)) = binary(sign).filter(|(level, _)| *level > above)
        {
            let sign = self.advance().span;
            let right = self.binary(level)?;
            let span = left.span.to(right.span);
            left = self.node(ExprKind::Binary(op, sign, Box::new(left), Box::new(right)), span)?;
        }
        Ok(left)
    }

    pub(super) fn unary(&mut self) -> Parsed<Expr> {
        let start = self.span();
        match self.kind() {
            TokenKind::Punct("+") => self.prefixed(UnaryOp::Plus),
            TokenKind::Punct("-") => self.prefixed(UnaryOp::Minus),
            TokenKind::Punct("~") => self.prefixed(UnaryOp::Complement),
            TokenKind::Punct("!") => self.prefixed(UnaryOp::Not),
            TokenKind::Punct(sign @ ("++" | "--")) => {
                self.advance();
                let operand = Box::new(self.nested(Self::unary)?);
                self.node(ExprKind::Step { add: sign == "++", post: false, operand }, self.since(start))
            }
            TokenKind::Punct("*" | "&") => self.fail(no_pointers(start, "this takes or follows an address")),
            TokenKind::Keyword("sizeof") => self.sizeof(),
            TokenKind::Punct("(") if self.type_follows(1) => self.cast(),
            _ => self.postfix(),
        }
    }

    fn prefixed(&mut self, op: UnaryOp) -> Parsed<Expr> {
        let start = self.advance().span;
        let operand = Box::new(self.nested(Self::unary)?);
        self.node(ExprKind::Unary(op, operand), self.since(start))
    }

    fn cast(&mut self) -> Parsed<Expr> {
        let start = self.advance().span;
        let ty = self.type_name()?;
        self.refuse_pointer();
        self.expect(")", "after the type of the conversion")?;
        let operand = Box::new(self.nested(Self::unary)?);
        self.node(ExprKind::Cast(ty, operand), self.since(start))
    }

    fn sizeof(&mut self) -> Parsed<Expr> {
        let start = self.advance().span;
        if self.at_punct("(") && self.type_follows(1) {
            self.advance();
            let ty = self.type_name()?;
            self.expect(")", "after the type of `sizeof`")?;
            return self.node(ExprKind::SizeofType(ty), self.since(start));
        }
        let operand = Box::new(self.nested(Self::unary)?);
        self.node(ExprKind::SizeofValue(operand), self.since(start))
    }

    fn postfix(&mut self) -> Parsed<Expr> {
        let start = self.span();
        let mut value = self.primary()?;
        loop {
            let kind = match self.kind() {
                TokenKind::Punct("[" | ".") if matches!(value.kind, ExprKind::Int(..)) => {
                    let error = Diagnostic::new(value.span, "a number has no members or elements", "not a variable");
                    return self.fail(error.help("name a variable here"));
                }
                TokenKind::Punct("[") => {
                    self.advance();
                    let index = self.expression()?;
                    self.expect("]", "after the index")?;
                    ExprKind::Index(Box::new(value), Box::new(index))
                }
                TokenKind::Punct(".") => {
                    self.advance();
                    ExprKind::Member(Box::new(value), self.name("a member name after `.`")?)
                }
                TokenKind::Punct(sign @ ("++" | "--")) => {
                    self.advance();
                    ExprKind::Step { add: sign == "++", post: true, operand: Box::new(value) }
                }
                TokenKind::Punct("->") => {
                    let error = Diagnostic::new(self.span(), "E-code has no pointers", "this follows a pointer");
                    return self.fail(error.help("write `.` instead of `->`"));
                }
                _ => return Ok(value),
            };
            value = self.node(kind, self.since(start))?;
        }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let start = self.span();
        match self.kind() {
            TokenKind::Number => Ok(self.number()),
            TokenKind::Character => Ok(self.character()),
            TokenKind::Text => Ok(self.string()),
            TokenKind::Name if self.kind_after(1) == TokenKind::Punct("(") => self.call(),
            TokenKind::Name => {
                let name = self.advance().span.of(self.text).to_owned();
                Ok(Expr::new(ExprKind::Name(name), start))
            }
            TokenKind::Punct("(") => {
                self.advance();
                let mut inner = self.expression()?;
                self.expect(")", "to close this parenthesis")?;
                inner.span = self.since(start);
                Ok(inner)
            }
            _ => self.fail_no_value(),
        }
    }

    fn fail_no_value(&mut self) -> Parsed<Expr> {
        let (place, found) = (self.span(), self.found());
        let error = Diagnostic::new(place, format!("expected a value, found {found}"), "expected a value");
        self.fail(match self.kind() {
            TokenKind::Keyword(word) => error.help(format!("`{word}` is a keyword and has no value")),
            _ => error,
        })
    }

    fn call(&mut self) -> Parsed<Expr> {
        let start = self.span();
        let name = self.name("a function's name")?;
        self.calls.push(name.clone());
        self.advance();
        let mut arguments = Vec::new();
        while !self.at_punct(")") {
            arguments.push(self.assignment()?);
            if !self.take_punct(",") {
                break;
            }
        }
        self.expect(")", "after the arguments")?;
        self.node(ExprKind::Call(name, arguments), self.since(start))
    }

    pub(super) fn name(&mut self, what: &str) -> Parsed<Ident> {
        if self.kind() == TokenKind::Name {
            let span = self.advance().span;
            return Ok(Ident { name: span.of(self.text).to_owned(), span });
        }
        let found = self.found();
        let error = Diagnostic::new(self.span(), format!("expected {what}, found {found}"), "not a name");
        self.fail(match self.kind() {
            TokenKind::Keyword(word) => error.help(format!("`{word}` is a keyword: choose another name")),
            _ => error,
        })
    }

    fn node(&mut self, kind: ExprKind, span: Span) -> Parsed<Expr> {
        let expr = Expr::new(kind, span);
        if expr.depth > MAX_NESTING { self.fail_too_deep(self.last_span()) } else { Ok(expr) }
    }
}

/// The error for all pointer syntax.
pub(super) fn no_pointers(span: Span, label: &str) -> Diagnostic {
    Diagnostic::new(span, "E-code has no pointers", label)
        .help("use the variable or the array element itself, as in `table[i]`; a function returns its result")
}

/// The operator between two values, with its binding strength.
fn binary(sign: &str) -> Option<(u8, Operator)> {
    use Operator::{Compare, Value};
    Some(match sign {
        "||" => (1, Operator::Or),
        "&&" => (2, Operator::And),
        "|" => (3, Value(BinaryOp::Or)),
        "^" => (4, Value(BinaryOp::Xor)),
        "&" => (5, Value(BinaryOp::And)),
        "==" => (6, Compare(CompareOp::Eq)),
        "!=" => (6, Compare(CompareOp::Ne)),
        "<" => (7, Compare(CompareOp::Lt)),
        "<=" => (7, Compare(CompareOp::Le)),
        ">" => (7, Compare(CompareOp::Gt)),
        ">=" => (7, Compare(CompareOp::Ge)),
        "<<" => (8, Value(BinaryOp::Shl)),
        ">>" => (8, Value(BinaryOp::Shr)),
        "+" => (9, Value(BinaryOp::Add)),
        "-" => (9, Value(BinaryOp::Sub)),
        "*" => (10, Value(BinaryOp::Mul)),
        "/" => (10, Value(BinaryOp::Div)),
        "%" => (10, Value(BinaryOp::Rem)),
        _ => return None,
    })
}
