//! The tests of all engines: a table of programs with their results, and a generator of random programs.

pub mod conformance;
pub mod heavy;
mod table;
pub mod texts;

use crate::{CallContext, Engine, Program};

/// The handler of the thesis, §3.2.4, as printed. It needs formats for `input` and `output`, and the constant
/// `NUM_RESOURCES`.
pub const THESIS_HANDLER: &str = "{
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

/// Formats for [`THESIS_HANDLER`]: four resources of eight attributes.
pub const THESIS_FORMATS: &str = "
struct resource { int num_attributes; int attribute[8]; int threshold[8]; };
struct flags { int exceeded[8]; };
struct input { struct resource resource[4]; };
struct output { struct flags resource[4]; };
enum { NUM_RESOURCES = 4 };
";

/// Returns all visible results of three calls with events generated from `seed`.
pub fn seen(engine: &mut dyn Engine, program: &Program, seed: u64) -> Vec<String> {
    let call = |number| {
        let mut emitted = Vec::new();
        let input = texts::event(3 * seed + number, program.input.size as usize);
        let answer = engine.call(&input, &CallContext::default(), &mut |event| emitted.push(event.to_vec()));
        let (output, statics) = (engine.output().to_vec(), engine.statics().to_vec());
        format!("{answer:?} {output:x?} {statics:x?} {:x?} {emitted:x?}", engine.attributes())
    };
    (0..3).map(call).collect()
}
