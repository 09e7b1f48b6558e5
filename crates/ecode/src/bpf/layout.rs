//! The layout of a call's frame.

use super::walk;
use crate::hir::{Expr, ExprKind, Program, Stmt};

/// The frame of a call: one private block of memory, aligned to 8 bytes. Offsets and sizes are in bytes.
///
/// ```text
/// 0 fuel │ 8 emissions │ 16 host's own words │ 64 temporaries │ input │ output │ functions' frames
/// ```
/// Functions that are never active together share memory: a function's frame starts at the end of the largest
/// frame of its callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Offset at which the host puts the event before the call.
    pub input: u32,
    /// Size of the event.
    pub input_bytes: u32,
    /// Offset of the data that is passed on or emitted: the output, or the input if the program has no output
    /// format.
    pub output: u32,
    /// Size of the output.
    pub output_bytes: u32,
    /// Size of the whole frame, a multiple of 8.
    pub size: u32,
    /// Offset of each function's frame.
    pub(crate) functions: Vec<u32>,
}

impl Layout {
    /// Remaining fuel: instructions that loops may still execute (64 bits).
    pub const FUEL: u32 = 0;
    /// Remaining emissions (64 bits).
    pub const EMISSIONS: u32 = 8;
    /// Words for the host. Generated code never accesses them.
    pub const HOST: u32 = 16;
    pub const HOST_BYTES: u32 = 48;
    pub(crate) const TEMPORARIES: u32 = Self::HOST + Self::HOST_BYTES;

    pub fn of(program: &Program) -> Layout {
        let input = Self::TEMPORARIES + 8 * temporaries(program);
        let input_bytes = program.input.size;
        let after = (input + input_bytes).next_multiple_of(8);
        let (output, output_bytes, locals) = match &program.output {
            Some(format) => (after, format.size, (after + format.size).next_multiple_of(8)),
            None => (input, input_bytes, after),
        };
        let functions = places(program, locals);
        let end = |(place, function): (&u32, &crate::hir::Function)| place + function.frame.next_multiple_of(8);
        let size = functions.iter().zip(&program.functions).map(end).max().unwrap_or(locals);
        Layout { input, input_bytes, output, output_bytes, size, functions }
    }
}

/// The offset of each function's frame. Callers are placed before their callees.
fn places(program: &Program, locals: u32) -> Vec<u32> {
    let mut places = vec![locals; program.functions.len()];
    for (caller, function) in program.functions.iter().enumerate().rev() {
        let end = places[caller] + function.frame.next_multiple_of(8);
        walk::calls(&function.body, &mut |callee| {
            let place = &mut places[callee.0 as usize];
            *place = end.max(*place);
        });
    }
    places
}

/// Number of words for the values that wait in the frame while other expressions are evaluated.
fn temporaries(program: &Program) -> u32 {
    let all = walk::by_function(program, waiting_in);
    all.into_iter().max().unwrap_or(0) as u32
}

fn waiting_in(body: &[Stmt], known: &[u64]) -> u64 {
    let of_stmt = |stmt| {
        let (exprs, blocks) = walk::parts(stmt);
        let own = waiting_among(exprs, known);
        own.max(blocks.into_iter().map(|block| waiting_in(block, known)).max().unwrap_or(0))
    };
    body.iter().map(of_stmt).max().unwrap_or(0)
}

/// While operand number `i` is evaluated, at most `i` operands wait; at the end, all operands and the result.
fn waiting_among(operands: Vec<&Expr>, known: &[u64]) -> u64 {
    let at_end = operands.len() as u64 + 2;
    let during = operands.into_iter().enumerate().map(|(i, operand)| i as u64 + waiting(operand, known));
    during.max().unwrap_or(0).max(at_end)
}

fn waiting(expr: &Expr, known: &[u64]) -> u64 {
    let operands = waiting_among(walk::operands(expr), known);
    match expr.kind {
        // One word for the result. The arguments are already in the function's frame.
        ExprKind::Call(function, _) => operands.max(1 + known[function.0 as usize]),
        // The word for the result is allocated before the two branches.
        ExprKind::Select(..) => operands + 1,
        _ => operands,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hir::{Function, FunctionId};
    use qfabric_types::format::{Format, Scalar};

    fn function(frame: u32, callees: &[u32]) -> Function {
        let call = |&id| Expr { kind: ExprKind::Call(FunctionId(id), vec![]), ty: Scalar::I64 };
        let body = callees.iter().map(|id| Stmt::Expr(call(id))).collect();
        Function { name: String::new(), result: None, parameters: vec![], frame, body }
    }

    #[test]
    fn functions_that_are_never_active_together_share_memory() {
        let program = Program {
            input: Format { name: "input".into(), size: 12, align: 4, fields: vec![] },
            output: None,
            statics: vec![],
            attributes: vec![],
            functions: vec![function(8, &[]), function(20, &[0]), function(16, &[]), function(5, &[1, 2])],
            loops: vec![],
            writes_shared: false,
            has_loops: false,
            uses: Default::default(),
        };
        let layout = Layout::of(&program);
        let entry = layout.functions[3];
        assert_eq!(layout.functions, [entry + 8 + 24, entry + 8, entry + 8, entry]);
        assert_eq!(layout.size, entry + 8 + 24 + 8);
        assert_eq!((layout.output, layout.output_bytes), (layout.input, 12));
        assert!(entry >= layout.input + 12 && entry.is_multiple_of(8));
    }
}
