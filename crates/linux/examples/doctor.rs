//! Prints what this host offers, as `qfabric doctor` will.
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
