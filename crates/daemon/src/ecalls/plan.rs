//! Plans a chain: the order of its steps, and the point at which it leaves the kernel.
//!
//! ```text
//! kernel service:  [k_handler] [k_code] [memory_up] ─ … │ k_thread, hold, signal or channel, and all after it
//!                  at the hook, in the kernel           │ in the daemon
//! other services, and groups:                           │ all steps
//! ```

use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{Step, SubscriptionRequest};

use super::problems;

/// Signals that a subscription may use; the C library uses the ones below.
const SIGNALS: std::ops::RangeInclusive<i32> = 34..=64;

/// The steps of a chain, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub in_kernel: Vec<Step>,
    pub in_daemon: Vec<Step>,
}

impl Plan {
    /// Plans the chain of a request. `at_hook`: the chain begins in the kernel.
    pub(super) fn of(request: &SubscriptionRequest, at_hook: bool) -> Result<Plan, Problem> {
        check_signal(request.signal)?;
        let order = order(request)?;
        let leaves = |step: &Step| matches!(step, Step::KThread | Step::Hold | Step::Signal | Step::Channel);
        let cut = if at_hook { order.iter().position(leaves).unwrap_or(order.len()) } else { 0 };
        Ok(Plan { in_kernel: order[..cut].to_vec(), in_daemon: order[cut..].to_vec() })
    }
}

fn check_signal(signal: Option<i32>) -> Result<(), Problem> {
    match signal {
        Some(signal @ (32 | 33)) => {
            Err(problems::chain(format!("signal {signal} is reserved by the C library"), "use 34 (SIGRTMIN) to 64"))
        }
        Some(signal) if !SIGNALS.contains(&signal) => {
            Err(problems::chain(format!("signal {signal} is not a real-time signal"), "use 34 (SIGRTMIN) to 64"))
        }
        _ => Ok(()),
    }
}

pub(super) fn is_handler(step: Step) -> bool {
    matches!(step, Step::KHandler | Step::KCode)
}

/// Whether another field of the request requires this step.
fn is_named(request: &SubscriptionRequest, step: Step) -> bool {
    match step {
        Step::KHandler => request.k_handler.is_some(),
        Step::KCode => request.k_code.is_some(),
        Step::KThread => request.k_thread,
        Step::Hold => request.hold_until.is_some(),
        Step::MemoryUp => request.memory_up.is_some(),
        Step::Signal => request.signal.is_some(),
        Step::Channel => request.channel.is_some(),
    }
}

fn order(request: &SubscriptionRequest) -> Result<Vec<Step>, Problem> {
    let mut order = match request.order.is_empty() {
        true => Step::ALL.into_iter().filter(|step| is_named(request, *step)).collect(),
        false => request.order.clone(),
    };
    if request.k_thread && !order.contains(&Step::KThread) {
        let first = order.iter().position(|step| is_handler(*step)).unwrap_or(order.len());
        order.insert(first, Step::KThread);
    }
    complete(request, &order)?;
    runs_something(&order)?;
    Ok(order)
}

/// Checks that the order contains every required step once, and no other.
fn complete(request: &SubscriptionRequest, order: &[Step]) -> Result<(), Problem> {
    for step in Step::ALL {
        let (count, name) = (order.iter().filter(|named| **named == step).count(), step.name());
        match (count, is_named(request, step) || step == Step::KThread) {
            (0, true) if step != Step::KThread => {
                return Err(problems::chain(
                    format!("{name} is given, but missing in the order"),
                    "add it to the order",
                ));
            }
            (1.., false) => {
                return Err(problems::chain(
                    format!("the order names {name}, which is not given"),
                    "give it, or remove it from the order",
                ));
            }
            (2.., _) => return Err(problems::chain(format!("the order names {name} {count} times"), "name it once")),
            _ => {}
        }
    }
    Ok(())
}

fn runs_something(order: &[Step]) -> Result<(), Problem> {
    let thread = order.iter().position(|step| *step == Step::KThread);
    match thread {
        Some(at) if !order[at..].iter().any(|step| is_handler(*step)) => Err(problems::chain(
            "k_thread has no handler after it to run",
            "give k_code or k_handler, or remove k_thread",
        )),
        _ if order.last() == Some(&Step::Hold) => Err(problems::chain(
            "no step follows hold",
            "give memory_up, signal or channel, or name hold earlier in the order",
        )),
        _ if order.is_empty() => Err(problems::chain(
            "the subscription does nothing",
            "give k_code, k_handler, memory_up, signal or channel",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Step::{Hold, KCode, KHandler, KThread, MemoryUp, Signal};

    fn request(order: &[Step]) -> SubscriptionRequest {
        SubscriptionRequest {
            k_handler: Some("h".into()),
            k_code: Some("c".into()),
            memory_up: Some(Default::default()),
            signal: Some(40),
            order: order.to_vec(),
            ..Default::default()
        }
    }

    #[test]
    fn a_chain_leaves_the_kernel_at_its_first_signal_or_thread() {
        let plan = Plan::of(&request(&[KHandler, MemoryUp, Signal, KCode]), true).unwrap();
        assert_eq!((plan.in_kernel, plan.in_daemon), (vec![KHandler, MemoryUp], vec![Signal, KCode]));
        let plan = Plan::of(&request(&[KHandler, KThread, KCode, MemoryUp, Signal]), true).unwrap();
        assert_eq!((plan.in_kernel, plan.in_daemon), (vec![KHandler], vec![KThread, KCode, MemoryUp, Signal]));
    }

    #[test]
    fn an_event_is_held_in_the_daemon_behind_its_handlers() {
        let held = |order: &[Step]| SubscriptionRequest { hold_until: Some("at".into()), ..request(order) };
        let plan = Plan::of(&held(&[]), true).unwrap();
        assert_eq!((plan.in_kernel, plan.in_daemon), (vec![KHandler, KCode], vec![Hold, MemoryUp, Signal]));
        let nothing_left = Plan::of(&held(&[KHandler, KCode, MemoryUp, Signal, Hold]), true).unwrap_err();
        assert!(nothing_left.message.contains("no step follows hold"));
    }

    #[test]
    fn chains_of_user_services_run_in_the_daemon() {
        let plan = Plan::of(&request(&[]), false).unwrap();
        assert_eq!((plan.in_kernel, plan.in_daemon), (vec![], vec![KHandler, KCode, MemoryUp, Signal]));
    }

    #[test]
    fn the_flag_puts_the_first_handler_into_a_thread() {
        let request = SubscriptionRequest { k_thread: true, ..request(&[Signal, KCode, KHandler, MemoryUp]) };
        let plan = Plan::of(&request, true).unwrap();
        assert_eq!(plan.in_daemon, [Signal, KThread, KCode, KHandler, MemoryUp]);
    }

    #[test]
    fn inconsistent_requests_are_refused_with_the_conflicting_part() {
        let only = |change: fn(&mut SubscriptionRequest)| {
            let mut request = SubscriptionRequest::default();
            change(&mut request);
            Plan::of(&request, true).unwrap_err().to_string()
        };
        assert!(only(|_| ()).contains("does nothing"));
        assert!(only(|r| r.signal = Some(33)).contains("C library"));
        assert!(only(|r| r.signal = Some(9)).contains("34 (SIGRTMIN) to 64"));
        assert!(only(|r| (r.signal, r.k_thread) = (Some(40), true)).contains("no handler"));
        let refusal = |order: &[Step]| Plan::of(&request(order), true).unwrap_err().message;
        assert!(refusal(&[KHandler, KCode, MemoryUp]).contains("signal is given"));
        assert!(refusal(&[KHandler, KCode, MemoryUp, Signal, Signal]).contains("signal 2 times"));
        let plain = SubscriptionRequest { signal: Some(40), order: vec![Signal, KCode], ..Default::default() };
        assert!(Plan::of(&plain, true).unwrap_err().message.contains("names k_code"));
    }
}
