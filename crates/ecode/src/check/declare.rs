//! Declarations of variables: locals, `static` variables and constants.

use qfabric_types::format::Scalar;

use super::expr::Value;
use super::fold::cast;
use super::place::Location;
use super::scope::{Symbol, Variable};
use super::types::Type;
use super::{Checked, Checker, Findings};
use crate::ast::{Declaration, Declarator, Expr, ExprKind, Init, TypeKind};
use crate::diagnostics::Diagnostic;
use crate::hir::{self, Base, Stmt};

impl Checker<'_> {
    /// A declaration in a block, or between the statements of the text.
    pub(super) fn declaration(&mut self, declaration: &Declaration, body: &mut Vec<Stmt>) {
        if declaration.is_typedef {
            return self.typedef(declaration);
        }
        let Ok(ty) = self.declared_type(declaration) else {
            // The names are declared anyway, so that their uses cause no further errors.
            return self.declare_unknown(declaration);
        };
        for declarator in &declaration.declarators {
            if self.declare_one(declaration, &ty, declarator, body).is_err() {
                self.declare_anyhow(declarator, &ty);
            }
        }
    }

    fn declared_type(&mut self, declaration: &Declaration) -> Checked<Type> {
        match declaration.declarators.is_empty() {
            // `struct NAME;` announces a structure. Without pointers, only its definition gives it a use.
            true if declaration.announces() => Ok(Type::Scalar(Scalar::I32)),
            // A structure or an enumeration without a variable.
            true => self.any_type(&declaration.ty).map(|ty| ty.unwrap_or(Type::Scalar(Scalar::I32))),
            false => self.variable_type(&declaration.ty),
        }
    }

    fn declare_unknown(&mut self, declaration: &Declaration) {
        if !matches!(declaration.ty.kind, TypeKind::Struct { .. }) {
            for declarator in &declaration.declarators {
                self.declare_anyhow(declarator, &Type::Scalar(Scalar::I32));
            }
        }
    }

    /// Declares a variable after an error in its declaration, so that its uses cause no further errors.
    fn declare_anyhow(&mut self, declarator: &Declarator, ty: &Type) {
        if self.scopes.find(&declarator.name.name).is_none() {
            let ty = ty.clone().array(declarator.dims.iter().map(|_| 1));
            let variable = Variable { base: Base::Local, offset: 0, ty, is_const: false };
            self.scopes.declare(self.at_top(), &declarator.name.name, Symbol::Variable(variable), declarator.name.span);
        }
    }

    fn declare_one(
        &mut self,
        declaration: &Declaration,
        ty: &Type,
        declarator: &Declarator,
        body: &mut Vec<Stmt>,
    ) -> Checked<()> {
        let ty = self.complete(declaration, ty, declarator)?;
        if declaration.is_const && declarator.init.is_none() {
            return self.findings.fail_const_without_value(declarator);
        }
        if let (true, Type::Scalar(ty), Some(Init::Value(value))) = (declaration.is_const, &ty, &declarator.init) {
            return self.constant_or_local(declaration, *ty, declarator, value, body);
        }
        if declaration.is_static || self.is_table(declaration) {
            return self.static_variable(declaration, ty, declarator);
        }
        self.local_variable(declaration.is_const, ty, declarator, body)
    }

    /// Whether this declares a constant array or structure that all functions share.
    fn is_table(&self, declaration: &Declaration) -> bool {
        declaration.is_const && self.at_top()
    }

    /// The type with its dimensions. The length of `[]` is the number of values in the list.
    fn complete(&mut self, declaration: &Declaration, ty: &Type, declarator: &Declarator) -> Checked<Type> {
        if let ([None, inner @ ..], Some(Init::List(list, span))) = (&declarator.dims[..], &declarator.init) {
            let inner = Declarator { dims: inner.to_vec(), ..declarator.clone() };
            if list.is_empty() {
                let error = Diagnostic::new(*span, "an array of 0 elements", "this list is empty");
                return self.findings.fail(error.help("write at least one value"));
            }
            let element = self.with_dims(ty.clone(), &inner)?;
            let base = if declaration.is_static || self.is_table(declaration) { Base::Static } else { Base::Local };
            let elements = self.elements_in(&element, list, base)?;
            return Ok(element.array(std::iter::once(elements)));
        }
        if let ([None], Some(Init::Value(Expr { kind: ExprKind::Text(text), .. }))) =
            (&declarator.dims[..], &declarator.init)
        {
            return Ok(ty.clone().array(std::iter::once(text.len() as u32 + 1)));
        }
        self.with_dims(ty.clone(), declarator)
    }

    /// A `const` with a constant value takes no memory. With any other value, it is a read-only local.
    fn constant_or_local(
        &mut self,
        declaration: &Declaration,
        ty: Scalar,
        declarator: &Declarator,
        value: &Expr,
        body: &mut Vec<Stmt>,
    ) -> Checked<()> {
        let number = cast(self.number(value)?, ty);
        if let Some(value) = super::fold::known(&number) {
            self.declare_here(&declarator.name, Symbol::Constant(value, ty));
            return Ok(());
        }
        if declaration.is_static {
            return self.constant(value).map(|_| ());
        }
        let offset = self.local(&Type::Scalar(ty), true, declarator)?;
        let place = hir::Place { base: Base::Local, offset, indices: Vec::new(), ty };
        body.push(Stmt::Expr(hir::Expr { kind: hir::ExprKind::Store(place, Box::new(number)), ty }));
        Ok(())
    }

    fn static_variable(&mut self, declaration: &Declaration, ty: Type, declarator: &Declarator) -> Checked<()> {
        let name = &declarator.name;
        let offset =
            self.statics.allocate(ty.size(), ty.align(), &format!("`{}`", name.name), name.span, &mut self.findings)?;
        if let Some(init) = &declarator.init {
            let to = Location::at(Base::Static, offset, ty.clone(), false);
            self.static_init(&to, init)?;
        }
        let variable = Variable { base: Base::Static, offset, ty, is_const: declaration.is_const };
        self.declare_here(name, Symbol::Variable(variable));
        Ok(())
    }

    fn local_variable(
        &mut self,
        is_const: bool,
        ty: Type,
        declarator: &Declarator,
        body: &mut Vec<Stmt>,
    ) -> Checked<()> {
        // In C a name is visible in its own initialiser. Here it is not visible, because reading it there is
        // always a mistake.
        match &declarator.init {
            Some(init @ Init::Value(value)) if ty.is_text() && value.is_text() => {
                let offset = self.local(&ty, is_const, declarator)?;
                body.push(Stmt::Clear { place: clear_place(offset), bytes: ty.size() });
                let target = Location::at(Base::Local, offset, ty, false);
                self.list(&target, std::slice::from_ref(init), value.span, body)
            }
            Some(Init::Value(value)) => {
                let value = self.value(value)?;
                let offset = self.local(&ty, is_const, declarator)?;
                let target = Location::at(Base::Local, offset, ty, false);
                self.store_whole(target, value, declarator, body)
            }
            Some(Init::List(list, span)) => {
                let offset = self.local(&ty, is_const, declarator)?;
                body.push(Stmt::Clear { place: clear_place(offset), bytes: ty.size() });
                let target = Location::at(Base::Local, offset, ty, false);
                self.list(&target, list, *span, body)
            }
            None => {
                let offset = self.local(&ty, is_const, declarator)?;
                body.push(Stmt::Clear { place: clear_place(offset), bytes: ty.size() });
                Ok(())
            }
        }
    }

    /// Allocates a local and declares its name.
    fn local(&mut self, ty: &Type, is_const: bool, declarator: &Declarator) -> Checked<u32> {
        let name = &declarator.name;
        let offset =
            self.frame.allocate(ty.size(), ty.align(), &format!("`{}`", name.name), name.span, &mut self.findings)?;
        let variable = Variable { base: Base::Local, offset, ty: ty.clone(), is_const };
        self.declare(false, name, Symbol::Variable(variable));
        Ok(offset)
    }

    fn store_whole(
        &mut self,
        to: Location,
        value: Value,
        declarator: &Declarator,
        body: &mut Vec<Stmt>,
    ) -> Checked<()> {
        match (&to.ty, value) {
            (Type::Scalar(ty), Value::Number(value)) => {
                let ty = *ty;
                let value = Box::new(cast(value, ty));
                body.push(Stmt::Expr(hir::Expr { kind: hir::ExprKind::Store(to.place(), value), ty }));
                Ok(())
            }
            (_, Value::Whole(from)) => self.copy(to, from, declarator.name.span, declarator.span, body),
            (ty, _) => {
                let message = format!("{} cannot have this initial value", super::place::article(ty));
                let error = Diagnostic::new(declarator.span, message, "a value of another type");
                self.findings
                    .fail(error.help("write a list of values, `= {1, 2, 3}`, or no initial value, which means zeros"))
            }
        }
    }
}

impl Findings<'_> {
    fn fail_const_without_value<T>(&mut self, declarator: &Declarator) -> Checked<T> {
        let name = &declarator.name.name;
        let message = format!("the constant `{name}` has no value");
        let error = Diagnostic::new(declarator.name.span, message, "cannot be assigned later");
        self.fail(error.help(format!("write `const … {name} = …;`")))
    }
}

fn clear_place(offset: u32) -> hir::Place {
    hir::Place { base: Base::Local, offset, indices: Vec::new(), ty: Scalar::U8 }
}
