//! Limits that the administrator sets, read and changed while the daemon runs.

use qfabric_client::{Change, Client, HostLimits, LimitsPatch, Share};

use crate::session::{WITHOUT_DAEMON, qf_session, with};
use crate::status::{Failure, QF_STATE, put, qf_status, settle};

/// Kind of limit.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum qf_limit {
    /// For all applications together. Without this limit, the capacity that the kernel admits.
    QF_LIMIT_CAPACITY = 0,
    /// For a priority level, 0 to 9.
    QF_LIMIT_LEVEL = 1,
    /// For a user, by uid.
    QF_LIMIT_USER = 2,
    /// For a group, by gid.
    QF_LIMIT_GROUP = 3,
    /// For each user without a limit for that uid.
    QF_LIMIT_DEFAULT_USER = 4,
}

/// Returns the client with which a task reaches its daemon. QF_STATE if the task has none.
///
/// # Safety
/// `task` is null or a live handle.
pub(crate) unsafe fn client(task: *mut qf_session) -> Result<Client, Failure> {
    let alone = || Failure::new(QF_STATE, WITHOUT_DAEMON);
    // SAFETY: the caller guarantees it.
    unsafe { with(task, |task| task.client.clone().ok_or_else(alone)) }
}

fn kind(number: u32) -> Result<qf_limit, Failure> {
    use qf_limit::{QF_LIMIT_CAPACITY, QF_LIMIT_DEFAULT_USER, QF_LIMIT_GROUP, QF_LIMIT_LEVEL, QF_LIMIT_USER};
    let kinds = [QF_LIMIT_CAPACITY, QF_LIMIT_LEVEL, QF_LIMIT_USER, QF_LIMIT_GROUP, QF_LIMIT_DEFAULT_USER];
    kinds
        .into_iter()
        .find(|kind| *kind as u32 == number)
        .ok_or_else(|| Failure::invalid(format!("the kind of limit is {number}; use one of the enum qf_limit, 0 to 4")))
}

fn level(number: u32) -> Result<u8, Failure> {
    u8::try_from(number).map_err(|_| Failure::invalid(format!("the level is {number}; use 0 (last) to 9 (first)")))
}

/// Reads one limit: the largest bandwidth that its applications may hold together, in CPUs; -1 if there is no
/// limit. `kind` is a qf_limit. `number` is the level, uid or gid; the other two kinds ignore it.
///
/// # Safety
/// `task` is a live handle, `cpus` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_get_limit(task: *mut qf_session, kind: u32, number: u32, cpus: *mut f64) -> qf_status {
    let read = || {
        // SAFETY: the caller guarantees it.
        let limits = unsafe { client(task) }?.limits()?;
        let most = limit(&limits, kind, number)?;
        // SAFETY: the caller guarantees it.
        unsafe { put("the limit", cpus, most.map_or(-1.0, Share::as_f64)) }
    };
    settle(read())
}

fn limit(limits: &HostLimits, number_of_kind: u32, number: u32) -> Result<Option<Share>, Failure> {
    Ok(match kind(number_of_kind)? {
        qf_limit::QF_LIMIT_CAPACITY => limits.capacity,
        qf_limit::QF_LIMIT_LEVEL => limits.levels.get(&level(number)?).copied(),
        qf_limit::QF_LIMIT_USER => limits.users.get(&number).copied(),
        qf_limit::QF_LIMIT_GROUP => limits.groups.get(&number).copied(),
        qf_limit::QF_LIMIT_DEFAULT_USER => limits.default_user,
    })
}

/// Changes one limit until the daemon's next start or reload; a negative `cpus` removes it. Other limits keep their
/// values, even if another program changes them at the same time. Only root and the daemon's user may do this.
/// Applications keep their guaranteed shares; the rest is divided again.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_limit(task: *mut qf_session, kind: u32, number: u32, cpus: f64) -> qf_status {
    let write = || {
        // SAFETY: the caller guarantees it.
        let client = unsafe { client(task) }?;
        client.change_limits(&change(kind, number, most(cpus)?)?)?;
        Ok(())
    };
    settle(write())
}

fn most(cpus: f64) -> Result<Option<Share>, Failure> {
    match cpus {
        cpus if cpus < 0.0 => Ok(None),
        cpus if cpus <= Share::MAX.as_f64() => Ok(Some(Share::from_f64(cpus))),
        cpus => Err(Failure::invalid(format!("the limit is {cpus}; use CPUs up to 4096, or -1 for none"))),
    }
}

fn change(number_of_kind: u32, number: u32, most: Option<Share>) -> Result<LimitsPatch, Failure> {
    let nothing = LimitsPatch::default();
    Ok(match kind(number_of_kind)? {
        qf_limit::QF_LIMIT_CAPACITY => LimitsPatch { capacity: most.into(), ..nothing },
        qf_limit::QF_LIMIT_LEVEL => LimitsPatch { levels: Change::Set([(level(number)?, most)].into()), ..nothing },
        qf_limit::QF_LIMIT_USER => LimitsPatch { users: Change::Set([(number, most)].into()), ..nothing },
        qf_limit::QF_LIMIT_GROUP => LimitsPatch { groups: Change::Set([(number, most)].into()), ..nothing },
        qf_limit::QF_LIMIT_DEFAULT_USER => LimitsPatch { default_user: most.into(), ..nothing },
    })
}
