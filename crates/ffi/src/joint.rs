//! Joint contracts: resources of several hosts that are promised together or not at all (QualMan §2.3).

use std::ffi::c_char;
use std::time::Duration;

use qfabric_client::{
    Client, JointBuilder, JointHandle, JointId, JointRefusal, JointResource, Nanos, Resource, UpgradeOffer,
};

use crate::ecalls::{give, optional, take_back};
use crate::offer::{QF_CLAIM_SIZE, QF_HOST_SIZE, chars};
use crate::status::{
    Exclusive, Failure, Outcome, QF_STATE, borrow, joint_refusal, not_null, put, qf_bool, qf_status, settle, text,
};

/// Size of a resource's name in bytes, including the zero byte.
pub const QF_RESOURCE_SIZE: usize = 32;

/// The amounts of a joint contract, collected one after the other. One call at a time may use it.
pub struct qf_joint_request(Exclusive<JointBuilder>);

/// A joint contract. It survives this handle and the program, except with qf_joint_lease. One call at a time may use it,
/// from any thread.
pub struct qf_joint(Exclusive<JointHandle>);

/// One resource of one host in a joint contract. Amounts are CPUs, bytes, or bits per second.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qf_joint_resource {
    /// Name of the host.
    pub host: [c_char; QF_HOST_SIZE],
    /// "cpu", "memory", or "network INTERFACE out|in".
    pub resource: [c_char; QF_RESOURCE_SIZE],
    /// The wanted amount.
    pub asked: f64,
    /// Less than `asked` if the contract is partly satisfied.
    pub granted: f64,
}

/// Why a joint contract was refused. Amounts are as in qf_joint_resource; -1 if the refusal has no such amount.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qf_joint_refusal {
    /// Name of the host that refused, or did not answer.
    pub refused_by: [c_char; QF_HOST_SIZE],
    /// The resource that was short; empty if another rule refused: see qf_last_error.
    pub resource: [c_char; QF_RESOURCE_SIZE],
    /// The wanted amount.
    pub asked: f64,
    /// The free amount.
    pub free: f64,
    /// The largest amount that would have been granted.
    pub largest: f64,
}

/// What holds a resource that is short, on the host that refused a joint contract.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qf_joint_holder {
    /// Name of the host that initiated the contracts that hold it. Empty: what programs of the refusing host, and its
    /// loans, hold without a contract, together.
    pub host: [c_char; QF_HOST_SIZE],
    /// The amount, as in qf_joint_resource.
    pub amount: f64,
}

/// More that a host holds for a partly satisfied contract, until it is accepted or its time is over.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qf_joint_offer {
    /// Name of the host; empty if none offered more.
    pub host: [c_char; QF_HOST_SIZE],
    /// Time that is left for an answer.
    pub left_ns: u64,
    /// Number of the host's resources. Their `granted` is the whole amount after the upgrade.
    pub count: usize,
}

const NO_OFFER: qf_joint_offer = qf_joint_offer { host: [0; QF_HOST_SIZE], left_ns: 0, count: 0 };

impl From<&JointResource> for qf_joint_resource {
    fn from(found: &JointResource) -> qf_joint_resource {
        let (host, resource) = (chars(found.host.as_str()), chars(&found.resource.to_string()));
        qf_joint_resource { host, resource, asked: found.asked, granted: found.granted }
    }
}

impl From<&JointRefusal> for qf_joint_refusal {
    fn from(refusal: &JointRefusal) -> qf_joint_refusal {
        let resource = refusal.resource.as_ref().map(Resource::to_string).unwrap_or_default();
        qf_joint_refusal {
            refused_by: chars(refusal.refused_by.as_str()),
            resource: chars(&resource),
            asked: refusal.asked.unwrap_or(-1.0),
            free: refusal.free.unwrap_or(-1.0),
            largest: refusal.largest.unwrap_or(-1.0),
        }
    }
}

/// Reads the identity of a contract, as qf_joint_id writes it.
///
/// # Safety
/// `contract` is null or a zero-terminated string.
pub(crate) unsafe fn identity(contract: *const c_char) -> Result<JointId, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe { text("the contract", contract) }?.parse().map_err(Failure::invalid)
}

/// Returns a request without amounts. Never null. Free it with qf_joint_request_free.
#[unsafe(no_mangle)]
pub extern "C" fn qf_joint_request_new() -> *mut qf_joint_request {
    Box::into_raw(Box::new(qf_joint_request(Exclusive::new(JointBuilder::new()))))
}

/// Asks for an amount of a resource of a host: CPUs, bytes, or bits per second. With less than `minimum` the program
/// has no use for the contract. `resource` is "cpu", "memory", or "network INTERFACE out|in". A null `host` is the host
/// of the daemon. A second amount of the same resource replaces the first.
///
/// # Safety
/// `request` is a live handle, `host` null or a zero-terminated string, `resource` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_want(
    request: *mut qf_joint_request,
    host: *const c_char,
    resource: *const c_char,
    wanted: f64,
    minimum: f64,
) -> qf_status {
    let want = || {
        // SAFETY: the caller guarantees it.
        let (host, resource) = unsafe { (optional("the host", host)?, text("the resource", resource)?) };
        let resource: Resource = resource.parse().map_err(Failure::invalid)?;
        // SAFETY: the caller guarantees it.
        unsafe { borrow(request) }?.0.with(|builder| {
            *builder = builder.clone().want(&host.unwrap_or_default(), resource, wanted, minimum)?;
            Ok(())
        })
    };
    settle(want())
}

/// Asks for the amounts of a stream on all its hosts, of which those of its worst accepted quality are enough. `stream`
/// is the text of a stream file, as for `qfabric contract apply`; a profile that it names is found as by
/// qf_profile_find. The amounts replace earlier ones of the same resources. QF_INVALID: the text has a mistake, whose
/// line and column qf_last_error names.
///
/// # Safety
/// `request` is a live handle, `stream` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_stream(request: *mut qf_joint_request, stream: *const c_char) -> qf_status {
    let want = || {
        // SAFETY: the caller guarantees it.
        let stream = unsafe { text("the stream", stream) }?;
        // SAFETY: the caller guarantees it.
        unsafe { borrow(request) }?.0.with(|builder| {
            *builder = builder.clone().stream(stream)?;
            Ok(())
        })
    };
    settle(want())
}

/// Explains the amounts of a stream step by step, each with its formula. Writes to `*length` the length of the JSON
/// that `qfabric contract explain --json` prints. If `size` is larger than this length, also writes the JSON and a
/// zero byte to `json`; otherwise `json` may be null. Needs no daemon.
///
/// # Safety
/// `stream` is a zero-terminated string, `json` null or writable memory of `size` bytes, `length` writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_explain(
    stream: *const c_char,
    json: *mut c_char,
    size: usize,
    length: *mut usize,
) -> qf_status {
    let explain = || {
        // SAFETY: the caller guarantees it.
        let explanation = qfabric_client::explain(unsafe { text("the stream", stream) }?)?;
        let answer = serde_json::to_string(&explanation).expect("an explanation is plain values");
        // SAFETY: the caller guarantees it.
        unsafe { put("the length", length, answer.len()) }?;
        if size > answer.len() {
            not_null("the JSON", json)?;
            // SAFETY: not null, and `size` bytes are writable as the caller guarantees; fewer are written.
            unsafe {
                json.cast::<u8>().copy_from_nonoverlapping(answer.as_ptr(), answer.len());
                json.add(answer.len()).write(0);
            }
        }
        Ok(())
    };
    settle(explain())
}

/// Lets the request be tried again for `patience_ns`, if a refusal may pass when other contracts end; at most a minute.
///
/// # Safety
/// `request` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_patience(request: *mut qf_joint_request, patience_ns: u64) -> qf_status {
    let set = |builder: &mut JointBuilder| {
        *builder = builder.clone().patience(Duration::from_nanos(patience_ns));
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    settle(unsafe { borrow(request) }.and_then(|request| request.0.with(set)))
}

/// Needs the consent of an application on a host, as it is named there. A null `host` is the host of the daemon.
///
/// # Safety
/// `request` is a live handle, `host` null or a zero-terminated string, `application` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_application(
    request: *mut qf_joint_request,
    host: *const c_char,
    application: *const c_char,
) -> qf_status {
    let set = || {
        // SAFETY: the caller guarantees it.
        let (host, named) = unsafe { (optional("the host", host)?, text("the application", application)?) };
        // SAFETY: the caller guarantees it.
        unsafe { borrow(request) }?.0.with(|builder| {
            *builder = builder.clone().application(&host.unwrap_or_default(), named);
            Ok(())
        })
    };
    settle(set())
}

/// Ends the contract with a process, however it ends. With the calling process (`pid` 0 or its own), the contract also
/// ends with qf_joint_free. Another process must belong to the same user.
///
/// # Safety
/// `request` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_lease(request: *mut qf_joint_request, pid: i32) -> qf_status {
    let set = |builder: &mut JointBuilder| {
        let leased = builder.clone();
        *builder = if pid == 0 { leased.leased() } else { leased.with_process(pid) };
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    settle(unsafe { borrow(request) }.and_then(|request| request.0.with(set)))
}

/// Sets who decides when more becomes free for a partly satisfied contract: "accept", the default, lets the daemon
/// accept it at once; with "ask" the program decides: see qf_joint_next_offer; with "never" the contract stays as it is.
///
/// # Safety
/// `request` is a live handle, `policy` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_upgrades(request: *mut qf_joint_request, policy: *const c_char) -> qf_status {
    let set = || {
        // SAFETY: the caller guarantees it.
        let policy = unsafe { text("the policy", policy) }?;
        // SAFETY: the caller guarantees it.
        unsafe { borrow(request) }?.0.with(|builder| {
            *builder = builder.clone().upgrades_named(policy)?;
            Ok(())
        })
    };
    settle(set())
}

/// Makes the contract: all amounts on all hosts, or nothing. May block for 44 s and the patience. QF_REFUSED if a host
/// refused its part; qf_last_joint_refusal then names it. Free `*contract` with qf_joint_free; the request can be used
/// again.
///
/// # Safety
/// `request` is a live handle, `contract` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_apply(request: *mut qf_joint_request, contract: *mut *mut qf_joint) -> qf_status {
    let apply = |builder: &mut JointBuilder| Ok(builder.apply(&Client::connect()?)?);
    // Before the call, because the program could not end a contract that it does not know.
    let place = not_null("the pointer for the handle", contract);
    // SAFETY: the caller guarantees it.
    let made = place.and_then(|()| unsafe { borrow(request) }).and_then(|request| request.0.with(apply));
    // SAFETY: the caller guarantees it.
    settle(made.and_then(|made| unsafe { give(contract, qf_joint(Exclusive::new(made))) }))
}

/// Frees a request. Null is allowed.
///
/// # Safety
/// `request` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_request_free(request: *mut qf_joint_request) {
    // SAFETY: null or made by `qf_joint_request_new` from a Box, and not used again as the caller guarantees.
    drop(unsafe { take_back(request) });
}

/// Opens a contract that is in force already. Free `*contract` with qf_joint_free.
///
/// # Safety
/// `id` is a zero-terminated string, `contract` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_open(id: *const c_char, contract: *mut *mut qf_joint) -> qf_status {
    let open = || {
        // SAFETY: the caller guarantees it.
        let id = unsafe { text("the contract", id) }?;
        let found = JointHandle::open_named(&Client::connect()?, id)?;
        // SAFETY: the caller guarantees it.
        unsafe { give(contract, qf_joint(Exclusive::new(found))) }
    };
    settle(open())
}

/// The number of contracts in force that users of this host asked for. At most `most` identities are written to `ids`,
/// which may be null if `most` is 0.
///
/// # Safety
/// `ids` points to writable memory for `most` identities, `count` to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_list(ids: *mut [c_char; QF_CLAIM_SIZE], most: usize, count: *mut usize) -> qf_status {
    let list = || {
        let all = Client::connect()?.joint_contracts()?;
        for (at, found) in all.iter().take(most).enumerate() {
            // SAFETY: the caller guarantees `most` places; a null pointer is refused.
            unsafe { put("the list of identities", ids.wrapping_add(at), chars(&found.id.to_string())) }?;
        }
        // SAFETY: the caller guarantees it.
        unsafe { put("the count", count, all.len()) }
    };
    settle(list())
}

/// Reads something of a contract and writes it to `to`.
///
/// # Safety
/// `contract` is null or a live handle, `to` is null or points to writable memory.
unsafe fn ask<T>(
    contract: *const qf_joint,
    what: &str,
    to: *mut T,
    act: impl FnOnce(&mut JointHandle) -> Result<T, Failure>,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    let answer = unsafe { borrow(contract) }.and_then(|contract| contract.0.with(act));
    // SAFETY: the caller guarantees it.
    settle(answer.and_then(|value| unsafe { put(what, to, value) }))
}

/// Writes the identity HOST:NUMBER, with which other programs find the contract and draw from it.
///
/// # Safety
/// `contract` is a live handle, `id` points to writable memory for one identity.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_id(contract: *const qf_joint, id: *mut [c_char; QF_CLAIM_SIZE]) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { ask(contract, "the identity", id, |contract| Ok(chars(&contract.id().to_string()))) }
}

/// The number of resources of a contract.
///
/// # Safety
/// `contract` is a live handle, `count` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_count(contract: *const qf_joint, count: *mut usize) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { ask(contract, "the count", count, |contract| Ok(contract.resources().len())) }
}

/// Reads one resource of a contract; `at` counts from 0.
///
/// # Safety
/// `contract` is a live handle, `resource` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_at(
    contract: *const qf_joint,
    at: usize,
    resource: *mut qf_joint_resource,
) -> qf_status {
    let read = |contract: &mut JointHandle| {
        let all = contract.resources();
        let none = || Failure::invalid(format!("the contract has {} resources, but number {at} was asked", all.len()));
        all.get(at).map(qf_joint_resource::from).ok_or_else(none)
    };
    // SAFETY: the caller guarantees it.
    unsafe { ask(contract, "the resource", resource, read) }
}

/// Reads the contract again: a partly satisfied one is raised as soon as more is free. QF_REFUSED if it has ended.
///
/// # Safety
/// `contract` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_refresh(contract: *mut qf_joint) -> qf_status {
    // SAFETY: the caller guarantees it.
    settle(unsafe { borrow(contract) }.and_then(|contract| contract.0.with(|contract| Ok(contract.refresh()?))))
}

/// Ends the contract on all hosts. The handle is still to be freed.
///
/// # Safety
/// `contract` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_end(contract: *mut qf_joint) -> qf_status {
    // SAFETY: the caller guarantees it.
    settle(unsafe { borrow(contract) }.and_then(|contract| contract.0.with(|contract| Ok(contract.clone().end()?))))
}

/// Waits for a host to offer more for a partly satisfied contract with the policy "ask", for at most `timeout_ns` and
/// 30 s. `offer->host` is empty if no host did. At most `most` resources of the offer are written to `resources`, which
/// may be null if `most` is 0. Another thread may use the handle meanwhile.
///
/// # Safety
/// `contract` is a live handle, `offer` points to writable memory, `resources` to writable memory for `most` resources.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_next_offer(
    contract: *const qf_joint,
    timeout_ns: u64,
    offer: *mut qf_joint_offer,
    resources: *mut qf_joint_resource,
    most: usize,
) -> qf_status {
    let next = || {
        // SAFETY: the caller guarantees it. Before the call, because an offer is told once.
        unsafe { put("the offer", offer, NO_OFFER) }?;
        refuse_null(resources, most)?;
        // SAFETY: the caller guarantees it.
        let asked = unsafe { borrow(contract) }?.0.with(|contract| Ok(contract.clone()))?;
        let came = asked.next_offer(Duration::from_nanos(timeout_ns))?;
        let all = came.as_ref().map(|came| came.resources.as_slice()).unwrap_or_default();
        // SAFETY: the caller guarantees `most` places.
        unsafe { put_resources(resources, most, all) }?;
        let offered = came.as_ref().map_or(NO_OFFER, |came| qf_joint_offer {
            host: chars(came.host.as_str()),
            left_ns: came.left_ns.get(),
            count: came.resources.len(),
        });
        // SAFETY: the caller guarantees it.
        unsafe { put("the offer", offer, offered) }
    };
    settle(next())
}

/// Accepts or declines the offer of a host. QF_REFUSED if its time is over. The amounts of an accepted offer are in
/// force a moment later: see qf_joint_refresh.
///
/// # Safety
/// `contract` is a live handle, `host` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_answer_offer(
    contract: *const qf_joint,
    host: *const c_char,
    accept: qf_bool,
) -> qf_status {
    let answer = || {
        // SAFETY: the caller guarantees it.
        let host = unsafe { text("the host", host) }?;
        let host = host.parse().map_err(|error| Failure::invalid(format!("the host {host:?}: {error}")))?;
        let offer = UpgradeOffer { host, resources: Vec::new(), left_ns: Nanos::ZERO };
        // SAFETY: the caller guarantees it.
        unsafe { borrow(contract) }?.0.with(|contract| Ok(contract.answer_offer(&offer, accept.is_true())?))
    };
    settle(answer())
}

/// Refuses a list without memory.
pub(crate) fn refuse_null(list: *const qf_joint_resource, most: usize) -> Outcome {
    match list.is_null() && most > 0 {
        true => Err(Failure::invalid("the list of resources is a null pointer")),
        false => Ok(()),
    }
}

/// Writes at most `most` resources.
///
/// # Safety
/// `to` is null or points to writable memory for `most` resources.
pub(crate) unsafe fn put_resources(to: *mut qf_joint_resource, most: usize, all: &[JointResource]) -> Outcome {
    for (at, resource) in all.iter().take(most).enumerate() {
        // SAFETY: the caller guarantees `most` places; a null pointer is refused.
        unsafe { put("the list of resources", to.wrapping_add(at), resource.into()) }?;
    }
    Ok(())
}

/// Frees the handle; the contract stays in force, except if the calling process is its lease. Null is allowed.
///
/// # Safety
/// `contract` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_joint_free(contract: *mut qf_joint) {
    // SAFETY: null or made by this library from a Box, and not used again as the caller guarantees.
    drop(unsafe { take_back(contract) });
}

/// Reads the calling thread's last refusal of a joint contract. QF_STATE if the thread's last failed call was no such
/// refusal.
///
/// # Safety
/// `refusal` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_last_joint_refusal(refusal: *mut qf_joint_refusal) -> qf_status {
    match joint_refusal() {
        // SAFETY: the caller guarantees it.
        Some(kept) => settle(unsafe { put("the refusal", refusal, qf_joint_refusal::from(&*kept)) }),
        None => settle(Err(not_refused())),
    }
}

/// Reads what holds the resource that was short in the calling thread's last refusal of a joint contract: the contracts
/// of each initiator, largest amount first, at most 8, then what programs hold without a contract, if it is not zero.
/// At most `most` are written to `holders`, which may be null if `most` is 0; `*count` is the number of all. QF_STATE
/// as for qf_last_joint_refusal. Call it before another call of the thread fails.
///
/// # Safety
/// `holders` is null or points to writable memory for `most` of them, `count` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_last_joint_holders(
    holders: *mut qf_joint_holder,
    most: usize,
    count: *mut usize,
) -> qf_status {
    let read = || {
        let refusal = joint_refusal().ok_or_else(not_refused)?;
        let found = holders_of(&refusal);
        // SAFETY: the caller guarantees it.
        unsafe { put("the number of holders", count, found.len()) }?;
        for (at, holder) in found.into_iter().take(most).enumerate() {
            // SAFETY: the caller guarantees `most` places; a null pointer is refused.
            unsafe { put("the list of holders", holders.wrapping_add(at), holder) }?;
        }
        Ok(())
    };
    settle(read())
}

fn holders_of(refusal: &JointRefusal) -> Vec<qf_joint_holder> {
    let contracts = refusal.holders.iter().map(|holder| (holder.initiator.as_str(), holder.amount));
    let others = refusal.others.filter(|others| *others > 0.0).map(|others| ("", others));
    contracts.chain(others).map(|(host, amount)| qf_joint_holder { host: chars(host), amount }).collect()
}

fn not_refused() -> Failure {
    Failure::new(
        QF_STATE,
        "no host refused a joint contract in the last failed call of this thread; call this right after qf_joint_apply returns QF_REFUSED",
    )
}
