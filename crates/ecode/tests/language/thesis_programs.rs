//! Programs as the theses print them.

use super::*;

/// Thesis §3.2.4 as printed.
const HANDLER: &str = "{
    int i;
    int j;
    for (i = 0; i < NUM_RESOURCES; i++) {
        for (j = 0; j < input.resource[i].num_attributes; j++) {
            if (input.resource[i].attribute[j] > input.resource[i].threshold[j])
                output.resource[i].exceeded[j] = 1;
            else
                output.resource[i].exceeded[j] = 0;
        }
    }
}";

fn environment() -> Environment {
    let field =
        |name: &str, offset, dims| Field { name: name.to_owned(), offset, kind: Kind::Scalar(Scalar::I32), dims };
    let of = |name: &str, element: Format| {
        let size = 2 * element.size;
        let field = Field { name: "resource".to_owned(), offset: 0, kind: Kind::Struct(element), dims: vec![2] };
        Some(Format { name: name.to_owned(), size, align: 4, fields: vec![field] })
    };
    let fields =
        vec![field("num_attributes", 0, vec![]), field("attribute", 4, vec![3]), field("threshold", 16, vec![3])];
    let input = of("monitor", Format { name: "resource".to_owned(), size: 28, align: 4, fields });
    let fields = vec![field("exceeded", 0, vec![3])];
    let output = of("alarm", Format { name: "resource".to_owned(), size: 12, align: 4, fields });
    let constants = [("NUM_RESOURCES".to_owned(), 2)].into();
    Environment { input, output, constants, ..Environment::default() }
}

#[test]
fn the_handler_of_the_thesis_compiles_as_printed_and_reports_exceeded_thresholds() {
    let program = compile(HANDLER, &environment()).unwrap();
    assert!(program.has_loops && !program.writes_shared);
    let mut engine = Interpreter::new(&program, Limits::default());
    let event = ints(&[3, 10, 20, 30, 15, 15, 15, 1, 7, 7, 7, 6, 6, 6]);
    assert_eq!(engine.call(&event, &CallContext::default(), &mut |_| ()), Ok(1), "reaching the end passes the event");
    assert_eq!(engine.output(), ints(&[0, 1, 1, 1, 0, 0]));
}

#[test]
fn a_hostile_count_of_attributes_is_a_fault_and_not_an_access() {
    let program = compile(HANDLER, &environment()).unwrap();
    let mut engine = Interpreter::new(&program, Limits::default());
    let event = ints(&[4, 10, 20, 30, 15, 15, 15, 1, 7, 7, 7, 6, 6, 6]);
    let fault = engine.call(&event, &CallContext::default(), &mut |_| ());
    assert_eq!(fault, Err(Fault { kind: FaultKind::Index, line: 6 }));
}

#[test]
fn the_utility_functions_of_the_thesis_compile_as_printed() {
    let both = "int utility1 (int rate) {
    return rate*4;
}

int utility2 (int color_depth) {
    return color_depth;
}
";
    for (entry, input, utility) in [("utility1", 20, 80), ("utility2", 24, 24)] {
        let env = Environment { entry: Some(entry.to_owned()), ..Environment::default() };
        let program = compile(both, &env).unwrap();
        assert_eq!(program.functions.len(), 1, "only the called function");
        let mut engine = Interpreter::new(&program, Limits::default());
        assert_eq!(engine.call(&ints(&[input]), &CallContext::default(), &mut |_| ()), Ok(utility));
    }
    assert_eq!(program(both).input.fields[0].name, "color_depth", "the last function is the default entry");
}
