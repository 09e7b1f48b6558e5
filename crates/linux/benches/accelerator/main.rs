//! Static pages answered by the kernel (`sock.stream` with `answers`, and the handler of the guide) beside nginx, which
//! answers the same pages itself: `cargo bench -p qfabric-linux --bench accelerator`. Both send the same number of
//! bytes to the same generator (`wrk`), alternately, in the same run.
//!
//! Equal CPU: all work of the answering side is on one CPU, and the result is replies per second of this CPU's time.
//! nginx has one worker there; packets for it are handled there, too (receive packet steering on veth), so the kernel's
//! threads that carry answers run there. The generator is in a network namespace of its own, on another CPU. Busy time
//! is what a thread under SCHED_IDLE on the answering CPU does not get, in turns of equal work ("looper" of netperf):
//! the kernel's own accounting by ticks misses short interrupts.
//!
//! It needs root, two CPUs, `nginx`, `wrk`, and what `qfabric doctor` calls `bpf`. `make setup` does not install nginx,
//! because Debian starts it as a public service. `ROUNDS` in the environment sets the number of rounds (7), `SECONDS`
//! the length of each run in seconds (3).

mod load;
mod site;

use std::collections::BTreeMap;
use std::error::Error;
use std::net::Ipv4Addr;

use qfabric_ecode::{Environment, Limits, compile};
use qfabric_linux::cpus::CpuList;
use qfabric_linux::ecalls::{Install, Installed, Kernel, Step};
use qfabric_linux::namespace::{Namespace, may_make};
use qfabric_linux::net::testing::{Interface, own_network};
use qfabric_linux::testing::live_lock;

use load::{Generator, Run};
use site::Nginx;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// Address of the servers, and of the generator.
const HERE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const PORT: u16 = 8_080;
/// The interface of the servers.
const LINK: &str = "qpages";
/// Bytes of the pages: a small one, and one near the limit of 15,000 bytes.
const PAGES: [usize; 2] = [1_024, 12_288];
/// The aim of the ratio.
const AIM: f64 = 2.0;
/// What nginx says of itself, and what the kernel's answer says in this place, so that they can be told apart.
const BY_NGINX: &str = "Server: nginx";
const BY_KERNEL: &str = "Server: chain";

/// How much is measured.
#[derive(Clone, Copy)]
struct Plan {
    rounds: usize,
    seconds: u32,
}

impl Plan {
    fn new(is_short: bool) -> Plan {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        match is_short {
            true => Plan { rounds: 1, seconds: 1 },
            false => Plan {
                rounds: number("ROUNDS").unwrap_or(7).max(1) as usize,
                seconds: number("SECONDS").unwrap_or(3).max(1),
            },
        }
    }
}

fn main() {
    // `cargo test --benches` and the build of all benches pass flags that this program must only accept.
    if std::env::args().any(|flag| flag == "--test" || flag == "--list") {
        return;
    }
    let _alone = live_lock();
    if let Err(why) = measure(Plan::new(std::env::args().any(|flag| flag == "--max-time"))) {
        println!("not measured: {why}");
    }
}

fn measure(plan: Plan) -> Outcome<()> {
    let cpus: Vec<u32> = CpuList::online().iter().collect();
    let [server, .., client] = cpus[..] else { return Err("one CPU: server and generator need one each".into()) };
    if !may_make() {
        return Err("network namespaces need root (CAP_SYS_ADMIN and CAP_NET_ADMIN)".into());
    }
    site::require("nginx", "nginx-light")?;
    site::require("wrk", "wrk")?;
    let kernel = Kernel::open()?;
    own_network()?;
    let there = Namespace::new()?;
    let _link = Interface::veth_to(LINK, "ppages", &there, [HERE, THERE])?;
    load::receive_on(LINK, server)?;
    there.inside(|| load::receive_on("ppages", client).map_err(|error| error.to_string()))??;
    let generator = Generator::new(there, server, client);
    let Plan { rounds, seconds } = plan;
    println!(
        "Static pages, answered on CPU {server}; wrk on CPU {client}; {rounds} rounds of {seconds} s, alternately"
    );
    println!("{:<12} {:<22} {:>12} {:>10} {:>26}", "page", "", "replies/s", "CPU busy", "replies per CPU second");
    for page in PAGES {
        compare(&kernel, &generator, page, plan)?;
    }
    Ok(())
}

/// Measures both with a page of `page` bytes, and prints their medians and the ratio.
fn compare(kernel: &Kernel, generator: &Generator, page: usize, plan: Plan) -> Outcome<()> {
    let _nginx = Nginx::start(page, generator)?;
    let reply = generator.ask(page)?;
    let answer = reply.replacen(BY_NGINX, BY_KERNEL, 1);
    let (mut by_nginx, mut by_kernel) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let order = if round % 2 == 0 { [false, true] } else { [true, false] };
        for is_kernel in order {
            let installed = if is_kernel { Some(install(kernel, &answer)?) } else { None };
            let name = if is_kernel { BY_KERNEL } else { BY_NGINX };
            if !generator.ask(page)?.contains(name) {
                return Err(format!("the reply does not contain {name:?}").into());
            }
            let run = generator.run(plan.seconds)?;
            drop(installed);
            if is_kernel { by_kernel.push(run) } else { by_nginx.push(run) }
        }
    }
    row(page, "nginx, one worker", &by_nginx);
    row(page, "sock.stream, answers", &by_kernel);
    let pairs = by_kernel.iter().zip(&by_nginx);
    let (least, middle, largest) =
        spread(pairs.map(|(kernel, nginx)| kernel.efficiency() / nginx.efficiency()).collect());
    println!("{page:<12} ratio of replies per CPU second: {middle:.2} ({least:.2}..{largest:.2}; aim: {AIM})");
    Ok(())
}

/// Makes the kernel answer for the server.
fn install(kernel: &Kernel, answer: &str) -> Outcome<Installed> {
    let guide = include_str!("../../../../docs/guide/src/ecalls.md");
    let mut blocks = guide.split("```c\n").filter_map(|rest| rest.split("```").next());
    let text = blocks.find(|code| code.contains("input.tail")).ok_or("the guide has no such handler")?;
    let input = kernel.service("sock.stream").map(|service| service.format.clone());
    let program = compile(text, &Environment { input, ..Environment::default() }).expect("the handler compiles");
    let options = BTreeMap::from([
        ("listen".to_owned(), format!("{HERE}:{PORT}")),
        ("answers".to_owned(), format!("{}:{answer},", answer.len())),
    ]);
    let request = Install {
        service: "sock.stream",
        options: &options,
        only_pid: None,
        steps: &[Step::Handler(&program)],
        limits: Limits::default(),
        down: None,
        deadline: None,
        fault_passes: true,
        measured: false,
    };
    Ok(kernel.install(&request)?)
}

/// Prints the medians of runs, and the spread of the last number.
fn row(page: usize, name: &str, runs: &[Run]) {
    let (_, rate, _) = spread(runs.iter().map(|run| run.rate).collect());
    let (_, busy, _) = spread(runs.iter().map(|run| 100.0 * run.busy).collect());
    let (least, middle, largest) = spread(runs.iter().map(Run::efficiency).collect());
    println!("{page:<12} {name:<22} {rate:>12.0} {busy:>8.0} % {middle:>12.0} ({least:.0}..{largest:.0})");
}

/// Least, median and largest.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[0], values[values.len() / 2], values[values.len() - 1])
}
