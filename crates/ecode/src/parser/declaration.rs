//! Parses types, declared names, structures, enumerations and functions.

use qfabric_types::format::{Format, Scalar};

use super::expression::no_pointers;
use super::{Parsed, Parser};
use crate::ast::{Declaration, Declarator, Expr, Function, Ident, Init, Member, Parameter, TypeKind, TypeName};
use crate::diagnostics::{Diagnostic, Span};
use crate::lexer::TokenKind;

/// Largest number of parameters of a function: half of the number that a C compiler must accept.
const MAX_PARAMETERS: usize = 64;

/// The types of `<stdint.h>`.
const STDINT: &[(&str, Scalar)] = &[
    ("int8_t", Scalar::I8),
    ("uint8_t", Scalar::U8),
    ("int16_t", Scalar::I16),
    ("uint16_t", Scalar::U16),
    ("int32_t", Scalar::I32),
    ("uint32_t", Scalar::U32),
    ("int64_t", Scalar::I64),
    ("uint64_t", Scalar::U64),
];

/// Type names that E-code does not have, with the type to use instead.
const ELSEWHERE: &[(&str, &str)] = &[
    ("bool", "unsigned char"),
    ("_Bool", "unsigned char"),
    ("size_t", "unsigned long"),
    ("ssize_t", "long"),
    ("u8", "uint8_t"),
    ("u16", "uint16_t"),
    ("u32", "uint32_t"),
    ("u64", "uint64_t"),
    ("s8", "int8_t"),
    ("s16", "int16_t"),
    ("s32", "int32_t"),
    ("s64", "int64_t"),
    ("__u8", "uint8_t"),
    ("__u16", "uint16_t"),
    ("__u32", "uint32_t"),
    ("__u64", "uint64_t"),
    ("uint", "unsigned int"),
    ("pid_t", "int"),
];

/// Words of C that say how a variable is stored or accessed. They have no meaning here.
const STORAGE_WORDS: &[&str] =
    &["_Atomic", "_Thread_local", "auto", "extern", "inline", "register", "restrict", "volatile"];

const TYPE_WORDS: &[&str] = &[
    "char", "const", "double", "enum", "float", "int", "long", "short", "signed", "static", "struct", "typedef",
    "union", "unsigned", "void",
];

/// Occurrences of each keyword of a type.
#[derive(Default)]
struct Words {
    char: u8,
    short: u8,
    int: u8,
    long: u8,
    signed: u8,
    unsigned: u8,
    float: u8,
    double: u8,
}

/// The meaning of declared names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    Members,
    Parameters,
    Variables,
    Types,
}

/// The storage class, qualifiers and type in front of the declared names.
pub(super) struct Head {
    pub is_typedef: bool,
    pub is_static: bool,
    pub is_const: bool,
    pub ty: TypeName,
}

impl Parser<'_> {
    /// Whether the token `more` places ahead begins a type.
    pub(super) fn type_follows(&self, more: usize) -> bool {
        let Some(token) = self.tokens.get(self.at + more) else { return false };
        match token.kind {
            TokenKind::Keyword(word) => TYPE_WORDS.contains(&word),
            TokenKind::Name => {
                let word = token.span.of(self.text);
                let known = STDINT.iter().any(|(name, _)| *name == word);
                let elsewhere = ELSEWHERE.iter().any(|(name, _)| *name == word);
                if STORAGE_WORDS.contains(&word) && self.type_word_after(more + 1) {
                    return true;
                }
                // A variable may have the name `bool`, but two names in a row are always a declaration.
                known
                    || self.typedefs.is_type(word)
                    || (elsewhere || more == 0) && self.kind_after(more + 1) == TokenKind::Name
            }
            _ => false,
        }
    }

    fn type_word_after(&self, more: usize) -> bool {
        match self.kind_after(more) {
            TokenKind::Keyword(word) => TYPE_WORDS.contains(&word),
            kind => kind == TokenKind::Name,
        }
    }

    /// Parses storage class, qualifiers and type.
    pub(super) fn head(&mut self) -> Parsed<Head> {
        let start = self.span();
        let (mut is_static, mut is_const, mut is_typedef) = (false, false, false);
        let mut words = Words::default();
        let mut kind = None;
        loop {
            match self.kind() {
                TokenKind::Keyword("typedef") => is_typedef = true,
                TokenKind::Keyword("static") => is_static = true,
                TokenKind::Keyword("const") => is_const = true,
                TokenKind::Keyword("void") => kind = Some(TypeKind::Void),
                TokenKind::Keyword("struct") => {
                    kind = Some(self.structure()?);
                    self.expect_end_of_definition("structure")?;
                    continue;
                }
                TokenKind::Keyword("enum") => {
                    kind = Some(self.enumeration()?);
                    self.expect_end_of_definition("enumeration")?;
                    continue;
                }
                TokenKind::Name if kind.is_none() && STORAGE_WORDS.contains(&self.span().of(self.text)) => {
                    self.refuse_storage_word();
                }
                TokenKind::Keyword("union") => return self.fail_union(),
                TokenKind::Keyword(word) if words.count(word) => {}
                TokenKind::Name if kind.is_none() && words.is_empty() => kind = Some(self.named_type()?),
                _ => break,
            }
            self.advance();
        }
        let span = self.since(start);
        let kind = match kind {
            Some(kind) if words.is_empty() => kind,
            None if !words.is_empty() => TypeKind::Scalar(self.scalar(&words, span)?),
            _ => return self.fail_type(span),
        };
        if is_typedef && is_static {
            let error = Diagnostic::new(span, "a `typedef` declares a type, which is not `static`", "both words");
            return self.fail(error.help("remove one of the words"));
        }
        Ok(Head { is_typedef, is_static, is_const, ty: TypeName { kind, span } })
    }

    /// Parses a type alone, as in a conversion.
    pub(super) fn type_name(&mut self) -> Parsed<TypeName> {
        let head = self.head()?;
        if head.is_typedef {
            let error = Diagnostic::new(head.ty.span, "`typedef` must be a declaration of its own", "not allowed here");
            return self.fail(error.help("write `typedef … NAME;` as a statement before this one"));
        }
        Ok(head.ty)
    }

    fn fail_type<T>(&mut self, span: Span) -> Parsed<T> {
        let error = Diagnostic::new(span, "these words do not form one type", "expected one type");
        self.fail(
            error.help("the types are char, short, int, long (each also unsigned), int8_t to uint64_t, float, double and struct NAME"),
        )
    }

    /// After the brace that ends a definition: reports a missing `;` if the next line begins something else.
    fn expect_end_of_definition(&mut self, what: &str) -> Parsed<()> {
        let is_definition = self.last_span().of(self.text) == "}";
        let begins_another = match self.kind() {
            TokenKind::Keyword(_) | TokenKind::Define | TokenKind::End => true,
            TokenKind::Name => self.kind_after(1) == TokenKind::Punct("(") || self.type_follows(0),
            _ => false,
        };
        if !(is_definition && begins_another && self.starts_new_line()) {
            return Ok(());
        }
        let found = self.found();
        let message = format!("`;` is missing after the {what}");
        let error = Diagnostic::new(self.last_span().after(), message, format!("expected `;`, found {found}"));
        self.fail(error.help("write `};` at its end"))
    }

    fn refuse_storage_word(&mut self) {
        let word = self.span().of(self.text);
        let error = Diagnostic::new(self.span(), format!("`{word}` is not supported"), "not part of E-code");
        self.report(error.help(match word {
            "volatile" | "_Atomic" => "remove it: every access happens; `attr.NAME += …` is atomic",
            _ => "remove it: a variable is local to its block, or `static`",
        }));
    }

    fn fail_union<T>(&mut self) -> Parsed<T> {
        let error = Diagnostic::new(self.span(), "`union` is not supported", "not part of E-code");
        self.fail(error.help("use a structure; its members do not overlap"))
    }

    fn named_type(&mut self) -> Parsed<TypeKind> {
        let word = self.span().of(self.text);
        if let Some((_, ty)) = STDINT.iter().find(|(name, _)| *name == word) {
            return Ok(TypeKind::Scalar(*ty));
        }
        if self.typedefs.is_type(word) {
            return Ok(TypeKind::Named(Ident { name: word.to_owned(), span: self.span() }));
        }
        let error = Diagnostic::new(self.span(), format!("there is no type `{word}`"), "not a type");
        let known = STDINT.iter().map(|(name, _)| *name).chain(TYPE_WORDS.iter().copied());
        self.fail(match ELSEWHERE.iter().find(|(name, _)| *name == word) {
            Some((_, here)) => error.help(format!("write `{here}`")),
            None => error.help(match crate::suggest::nearest(word, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("a structure type is written `struct {word}`"),
            }),
        })
    }

    fn scalar(&mut self, words: &Words, span: Span) -> Parsed<Scalar> {
        match (words.float, words.double, words.long) {
            (0, 0, _) => {}
            (1, 0, 0) if words.are_one() => return Ok(Scalar::F32),
            (0, 1, 0) if words.are_one() => return Ok(Scalar::F64),
            (0, 1, 1) => {
                let error = Diagnostic::new(span, "`long double` is not supported", "not part of E-code");
                return self.fail(error.help("use `double`, which has 64 bits"));
            }
            _ => return self.fail_type(span),
        }
        let signed = words.unsigned == 0;
        let bits = match (words.char, words.short, words.long) {
            (1, 0, 0) if words.int == 0 => 8,
            (0, 1, 0) => 16,
            (0, 0, 0) => 32,
            (0, 0, 1 | 2) => 64,
            _ => return self.fail_type(span),
        };
        if words.int > 1 || words.signed.saturating_add(words.unsigned) > 1 {
            return self.fail_type(span);
        }
        Ok(Scalar { bits, signed, float: false })
    }

    fn structure(&mut self) -> Parsed<TypeKind> {
        self.advance();
        let tag = match self.kind() {
            TokenKind::Punct("{") => None,
            _ => Some(self.name("the structure's name")?),
        };
        if !self.take_punct("{") {
            return Ok(TypeKind::Struct { tag, members: None });
        }
        let members = self.nested(Self::members)?;
        Ok(TypeKind::Struct { tag, members: Some(members) })
    }

    fn members(&mut self) -> Parsed<Vec<Member>> {
        let mut members = Vec::new();
        while !self.at_punct("}") {
            if !self.type_follows(0) {
                let found = self.found();
                let error = Diagnostic::new(self.span(), format!("expected a member, found {found}"), "not a type");
                return self.fail(error.help("declare a member as `int name;` or `char name[16];`"));
            }
            let ty = self.type_name()?;
            let declarators = self.declarators(Names::Members)?;
            self.expect(";", "after the member")?;
            members.push(Member { ty, declarators });
        }
        self.advance();
        Ok(members)
    }

    fn enumeration(&mut self) -> Parsed<TypeKind> {
        self.advance();
        if self.kind() == TokenKind::Name {
            self.advance();
        }
        if !self.take_punct("{") {
            return Ok(TypeKind::Enum { constants: None });
        }
        let mut constants = Vec::new();
        while !self.at_punct("}") {
            let name = self.name("a constant's name")?;
            let value = if self.take_punct("=") { Some(self.conditional()?) } else { None };
            constants.push((name, value));
            if !self.take_punct(",") {
                break;
            }
        }
        self.expect("}", "after the constants")?;
        Ok(TypeKind::Enum { constants: Some(constants) })
    }

    /// Parses declared names separated by commas; variables may have initial values.
    fn declarators(&mut self, names: Names) -> Parsed<Vec<Declarator>> {
        let mut list = vec![self.declarator(names)?];
        while self.take_punct(",") {
            list.push(self.declarator(names)?);
        }
        Ok(list)
    }

    pub(super) fn refuse_pointer(&mut self) {
        while self.at_punct("*") {
            self.report(no_pointers(self.span(), "this declares a pointer"));
            self.advance();
        }
    }

    fn declarator(&mut self, names: Names) -> Parsed<Declarator> {
        self.refuse_pointer();
        let start = self.span();
        let name = self.name("a name")?;
        let mut dims = Vec::new();
        while self.take_punct("[") {
            dims.push(if self.at_punct("]") { None } else { Some(self.conditional()?) });
            self.expect("]", "after the number of elements")?;
        }
        if dims.len() > Format::MAX_DIMENSIONS {
            let message =
                format!("`{}` has {} dimensions, the limit is {}", name.name, dims.len(), Format::MAX_DIMENSIONS);
            let error = Diagnostic::new(name.span, message, "too many dimensions");
            return self.fail(error.help("use one dimension and compute the index: `table[row * WIDTH + column]`"));
        }
        if self.at_punct(":") {
            let error = Diagnostic::new(self.span(), "E-code has no bit fields", "this declares a bit field");
            return self.fail(error.help("use a whole type and masks: `(input.flags >> 3) & 1`"));
        }
        if names != Names::Members {
            self.typedefs.declare(&name.name, names == Names::Types);
        }
        let init = if names == Names::Variables && self.take_punct("=") { Some(self.init()?) } else { None };
        Ok(Declarator { name, dims, init, span: self.since(start) })
    }

    fn init(&mut self) -> Parsed<Init> {
        let start = self.span();
        if !self.take_punct("{") {
            return Ok(Init::Value(self.assignment()?));
        }
        let mut list = Vec::new();
        while !self.at_punct("}") {
            if self.at_punct(".") || self.at_punct("[") {
                return self.fail_designated();
            }
            list.push(self.nested(Self::init)?);
            if !self.take_punct(",") {
                break;
            }
        }
        self.expect("}", "after the values")?;
        Ok(Init::List(list, self.since(start)))
    }

    fn fail_designated<T>(&mut self) -> Parsed<T> {
        let error = Diagnostic::new(
            self.span(),
            "a list of values cannot name the members or elements that it sets",
            "a designated value",
        );
        self.fail(error.help("write the values in the order of the declaration, or assign the members one by one"))
    }

    /// Parses the names after the head of a declaration.
    pub(super) fn declaration(&mut self, head: Head) -> Parsed<Declaration> {
        let Head { is_typedef, is_static, is_const, ty } = head;
        let alone = matches!(ty.kind, TypeKind::Struct { .. } | TypeKind::Enum { .. });
        let names = if is_typedef { Names::Types } else { Names::Variables };
        let alone = alone && !is_typedef && self.at_punct(";");
        let declarators = if alone { Vec::new() } else { self.declarators(names)? };
        self.expect(";", "after the declaration")?;
        Ok(Declaration { is_typedef, is_static, is_const, ty, declarators })
    }

    /// Parses the rest of a function after its head.
    pub(super) fn function(&mut self, head: Head) -> Parsed<Function> {
        if head.is_typedef {
            let error = Diagnostic::new(head.ty.span, "`typedef` of a function", "a type of functions");
            return self.fail(error.help("remove `typedef`, or declare the function's result type alone"));
        }
        let begin = self.typedefs.enter();
        let function = self.rest_of_function(head);
        self.typedefs.leave(begin);
        function
    }

    fn rest_of_function(&mut self, head: Head) -> Parsed<Function> {
        let name = self.name("the function's name")?;
        self.advance();
        let parameters = self.parameters()?;
        let span = self.since(head.ty.span);
        if self.at_punct(";") {
            let error = Diagnostic::new(span, format!("`{}` is declared without a body", name.name), "expected a body");
            self.report(error.help("remove this line: functions may be used before they are defined"));
            self.advance();
            return Err(super::Failed);
        }
        let before = std::mem::take(&mut self.calls);
        let body = self.block("the function's body");
        let calls = std::mem::replace(&mut self.calls, before);
        Ok(Function { result: head.ty, name, parameters, body: body?, calls, head: span })
    }

    fn parameters(&mut self) -> Parsed<Vec<Parameter>> {
        let mut list = Vec::new();
        if self.at_keyword("void") && self.kind_after(1) == TokenKind::Punct(")") {
            self.advance();
        }
        while !self.at_punct(")") {
            let is_last_word = matches!(self.kind_after(1), TokenKind::Punct("," | ")"));
            if self.kind() == TokenKind::Name && is_last_word && !self.type_follows(0) {
                return self.fail_without_type();
            }
            let ty = self.type_name()?;
            list.push(Parameter { ty, declarator: self.declarator(Names::Parameters)? });
            if !self.take_punct(",") {
                break;
            }
        }
        self.expect(")", "after the parameters")?;
        if list.len() > MAX_PARAMETERS {
            let message = format!("{} parameters, the limit is {MAX_PARAMETERS}", list.len());
            let error =
                Diagnostic::new(list[MAX_PARAMETERS].declarator.span, message, "this parameter exceeds the limit");
            return self.fail(error.help("pass values in `static` variables or in an array"));
        }
        Ok(list)
    }

    /// The parameter of a definition in the style of K&R, or a parameter whose type is missing.
    fn fail_without_type<T>(&mut self) -> Parsed<T> {
        let name = self.span().of(self.text);
        let error = Diagnostic::new(self.span(), format!("the parameter `{name}` has no type"), "expected a type");
        self.fail(error.help(format!("write the types inside the parentheses: `(int {name}, …)`")))
    }

    /// Parses the rest of a `#define`: a name and one value, up to the end of the line.
    pub(super) fn define(&mut self) -> Parsed<(Ident, Expr)> {
        self.advance();
        let name = self.name("the constant's name")?;
        if self.at_punct("(") && self.span().start == name.span.end {
            let error = Diagnostic::new(self.span(), format!("the macro `{}` has parameters", name.name), "parameters");
            let help = format!("write a function, `long {}(long x) {{ return …; }}`: it is as fast", name.name);
            return self.fail(error.help(help));
        }
        let value = self.unary()?;
        if self.kind() != TokenKind::LineEnd {
            let error = Diagnostic::new(self.span(), "the value of `#define` must be a single value", "unexpected");
            return self.fail(error.help(format!(
                "write parentheses, `#define {} (…)`: C would paste the unprotected text into larger expressions",
                name.name
            )));
        }
        self.advance();
        Ok((name, value))
    }
}

impl Words {
    /// Counts a keyword of a type. Returns false for any other word.
    fn count(&mut self, word: &str) -> bool {
        let counter = match word {
            "char" => &mut self.char,
            "short" => &mut self.short,
            "int" => &mut self.int,
            "long" => &mut self.long,
            "signed" => &mut self.signed,
            "unsigned" => &mut self.unsigned,
            "float" => &mut self.float,
            "double" => &mut self.double,
            _ => return false,
        };
        *counter = counter.saturating_add(1);
        true
    }

    fn total(&self) -> u32 {
        let integers = [self.char, self.short, self.int, self.long, self.signed, self.unsigned];
        integers.into_iter().chain([self.float, self.double]).map(u32::from).sum()
    }

    fn is_empty(&self) -> bool {
        self.total() == 0
    }

    fn are_one(&self) -> bool {
        self.total() == 1
    }
}
