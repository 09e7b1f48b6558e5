//! Prints what this host offers, in the raw form that `qfabric doctor` formats.
fn main() {
    let report = qfabric_linux::doctor::examine();
    for finding in &report.findings {
        println!("{:?}\t{}\t{}", finding.state, finding.name, finding.reason);
        if let Some(fix) = &finding.fix {
            println!("\t\t→ {fix}");
        }
    }
    println!("{:?}", report.facts);
}
