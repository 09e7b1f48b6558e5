//! Lists of initial values: `{1, 2, 3}`, `{{0, 1}, {2, 3}}`. Omitted values are zero. As in C (C11 6.7.9), the
//! braces around the values of an inner structure or array may be omitted.

use qfabric_types::format::Scalar;

use super::expr::Value;
use super::fold::{cast, constant};
use super::place::{Location, article};
use super::types::Type;
use super::{Checked, Checker, Findings};
use crate::ast::{Expr, ExprKind, Init};
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::{self, Base, Stmt};

/// The values of one list in braces while they are assigned to the parts of a variable.
struct Values<'i> {
    list: &'i [Init],
    /// Number of values that have been assigned.
    taken: usize,
    /// The checked form of the next value, if it did not fit the part for which it was checked.
    checked: Option<Value>,
}

impl Checker<'_> {
    /// Stores the initial values of a variable that has been cleared: statements for a local, bytes for a static.
    pub(super) fn list(&mut self, to: &Location, list: &[Init], span: Span, body: &mut Vec<Stmt>) -> Checked<()> {
        if let (true, [Init::Value(Expr { kind: ExprKind::Text(text), .. })]) = (to.ty.is_text(), list) {
            return self.text_init(to, text, span, body);
        }
        let mut values = Values { list, taken: 0, checked: None };
        self.fill(to, &mut values, body)?;
        if values.taken < list.len() {
            let message = format!("{} values for {}, which has room for {}", list.len(), article(&to.ty), values.taken);
            return self
                .findings
                .fail(Diagnostic::new(span, message, "too many values").help("remove the values at the end"));
        }
        Ok(())
    }

    /// Writes the initial contents of a `static` variable.
    pub(super) fn static_init(&mut self, to: &Location, init: &Init) -> Checked<()> {
        match init {
            Init::Value(value) if value.is_text() && to.ty.is_text() => {
                self.list(to, std::slice::from_ref(init), value.span, &mut Vec::new())
            }
            Init::List(list, span) => self.list(to, list, *span, &mut Vec::new()),
            Init::Value(value) => {
                let number = self.initial_value(to, value)?;
                self.store_part(to, number, value.span, &mut Vec::new())
            }
        }
    }

    /// Number of elements that a list gives to an array without a length.
    pub(super) fn elements_in(&mut self, element: &Type, list: &[Init], base: Base) -> Checked<u32> {
        let is_nested = |init: &Init| matches!(init, Init::List(..));
        if matches!(element, Type::Scalar(_)) || list.iter().all(is_nested) {
            return Ok(list.len() as u32);
        }
        // Which values belong to one element depends on their types: check them once to count.
        let (used, most) = (self.frame.used, self.frame.most);
        let to = Location::at(base, 0, element.clone(), false);
        let mut values = Values { list, taken: 0, checked: None };
        let mut elements = 0;
        while values.taken < list.len() {
            self.count_one(&to, &mut values)?;
            elements += 1;
        }
        (self.frame.used, self.frame.most) = (used, most);
        Ok(elements)
    }

    /// Takes the values of one element without storing them.
    fn count_one(&mut self, to: &Location, values: &mut Values<'_>) -> Checked<()> {
        let Some(Init::Value(value)) = values.list.get(values.taken) else {
            values.taken += 1;
            return Ok(());
        };
        if to.ty.is_text() && value.is_text() {
            values.taken += 1;
            return Ok(());
        }
        // A string in quotes belongs to an array of characters further inside.
        if !value.is_text() || matches!(to.ty, Type::Scalar(_)) {
            let checked = match values.checked.take() {
                Some(checked) => checked,
                None => self.initial_value(to, value)?,
            };
            if fits(&to.ty, &checked) {
                values.taken += 1;
                return Ok(());
            }
            if matches!(to.ty, Type::Scalar(_)) {
                // Not a number: reported when the values are stored.
                values.taken += 1;
                return Ok(());
            }
            values.checked = Some(checked);
        }
        for number in 0..parts(&to.ty) {
            if values.taken == values.list.len() {
                break;
            }
            let (_, ty) = part(&to.ty, number);
            self.count_one(&Location { ty, ..to.clone() }, values)?;
        }
        Ok(())
    }

    /// Assigns values to the parts of a place until either of them is used up.
    fn fill(&mut self, to: &Location, values: &mut Values<'_>, body: &mut Vec<Stmt>) -> Checked<()> {
        for number in 0..parts(&to.ty) {
            let Some(init) = values.list.get(values.taken) else { return Ok(()) };
            let (offset, ty) = part(&to.ty, number);
            let place = Location { offset: to.offset + offset, ty, ..to.clone() };
            let value = match init {
                Init::List(list, span) => {
                    values.taken += 1;
                    self.list(&place, list, *span, body)?;
                    continue;
                }
                Init::Value(Expr { kind: ExprKind::Text(text), span, .. }) if place.ty.is_text() => {
                    values.taken += 1;
                    self.text_init(&place, text, *span, body)?;
                    continue;
                }
                Init::Value(value) if value.is_text() && !matches!(place.ty, Type::Scalar(_)) => {
                    self.fill(&place, values, body)?;
                    continue;
                }
                Init::Value(value) => value,
            };
            let checked = match values.checked.take() {
                Some(checked) => checked,
                None => self.initial_value(&place, value)?,
            };
            if fits(&place.ty, &checked) || matches!(place.ty, Type::Scalar(_)) {
                values.taken += 1;
                self.store_part(&place, checked, value.span, body)?;
            } else {
                values.checked = Some(checked);
                self.fill(&place, values, body)?;
            }
        }
        Ok(())
    }

    /// Initialises an array of characters with a string. As in C, an array may be too short for the zero at the end.
    fn text_init(&mut self, to: &Location, text: &[u8], span: Span, body: &mut Vec<Stmt>) -> Checked<()> {
        let room = to.ty.size();
        if text.len() as u32 > room {
            let message =
                format!("a string of {} bytes for {}, which has room for {room}", text.len(), article(&to.ty));
            return self.findings.fail(Diagnostic::new(span, message, "too long").help("make the array longer"));
        }
        if to.base == Base::Static {
            self.statics.write(to.offset, text);
            return Ok(());
        }
        let from = self.statics.text_constant(text, span, &mut self.findings)?;
        let bytes = room.min(text.len() as u32 + 1);
        let kind = hir::ExprKind::Copy { to: Box::new(to.clone().place()), from: Box::new(from.place()), bytes };
        body.push(Stmt::Expr(hir::Expr { kind, ty: Scalar::I32 }));
        Ok(())
    }

    /// Checks a value. The initial value of a static must be constant.
    fn initial_value(&mut self, to: &Location, value: &Expr) -> Checked<Value> {
        match to.base {
            Base::Static => self.typed_constant(value).map(|(value, ty)| Value::Number(constant(value, ty))),
            _ => self.value(value),
        }
    }

    fn store_part(&mut self, part: &Location, value: Value, span: Span, body: &mut Vec<Stmt>) -> Checked<()> {
        match (&part.ty, value) {
            (Type::Scalar(ty), Value::Number(value)) if part.base == Base::Static => {
                let value = super::fold::known(&cast(value, *ty)).unwrap_or_default();
                let bytes = ty.bytes() as usize;
                self.statics.write(part.offset, &value.to_le_bytes()[..bytes]);
                Ok(())
            }
            (Type::Scalar(ty), Value::Number(value)) => {
                let ty = *ty;
                let value = Box::new(cast(value, ty));
                let place = part.clone().place();
                body.push(Stmt::Expr(hir::Expr { kind: hir::ExprKind::Store(place, value), ty }));
                Ok(())
            }
            (_, Value::Whole(from)) => self.copy(part.clone(), from, span, span, body),
            (ty, _) => self.findings.fail_no_list(&ty.clone(), span),
        }
    }
}

impl Findings<'_> {
    fn fail_no_list<T>(&mut self, ty: &Type, span: Span) -> Checked<T> {
        let error = Diagnostic::new(span, format!("{} needs a list of values", article(ty)), "a single value");
        self.fail(error.help("write the values in braces: `{1, 2, 3}`"))
    }
}

/// Whether the value initialises a variable of the type as a whole.
fn fits(ty: &Type, value: &Value) -> bool {
    match (ty, value) {
        (Type::Scalar(_), Value::Number(_)) => true,
        (Type::Struct(_) | Type::Array(..), Value::Whole(from)) => from.ty.same(ty),
        _ => false,
    }
}

/// Number of parts of a structure or an array; a number has itself as its only part.
fn parts(ty: &Type) -> u32 {
    match ty {
        Type::Scalar(_) => 1,
        Type::Array(_, count) => *count,
        Type::Struct(structure) => structure.members.len() as u32,
    }
}

/// The offset and the type of a part.
fn part(ty: &Type, number: u32) -> (u32, Type) {
    match ty {
        Type::Scalar(_) => (0, ty.clone()),
        Type::Array(element, _) => (number * element.size(), Type::clone(element)),
        Type::Struct(structure) => {
            let member = &structure.members[number as usize];
            (member.offset, member.ty.clone())
        }
    }
}
